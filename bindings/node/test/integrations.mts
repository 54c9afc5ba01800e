// Compiled, and never run: the types of the integrations, with those of the frameworks.
import express from 'express'
import Fastify from 'fastify'
import { Hono } from 'hono'
import Koa from 'koa'
import { Keyed, Limiter, ManualClock, Shared } from 'rategate'
import * as ofExpress from 'rategate/express'
import * as ofFastify from 'rategate/fastify'
import { pace } from 'rategate/fetch'
import * as ofHono from 'rategate/hono'
import * as ofKoa from 'rategate/koa'
import { pace as interceptor } from 'rategate/undici'
import { Agent } from 'undici'

const { client, header, method, path, peer } = ofExpress
const limit = ofExpress.rateLimit('5/min', {
  key: [client({ trust: ['10.0.0.0/8'], field: 'forwarded', groupV6: 56 }), header('x-user'), method, path],
  missing: 'refuse',
  cost: ({ headers }) => Number(headers['x-cost'] ?? 1),
  waitWithin: '2s',
  refundWhen: (response) => response.statusCode === 200,
  headers: { name: 'minute', unit: 'tokens', dialects: ['current', 'legacy'] },
  onRefused: (refusal) => console.log(refusal.reason, refusal.retryAfter),
  clock: new ManualClock(),
  maxKeys: 100,
  maxBytes: 2 ** 20
})
const app = express()
app.use(limit)
app.get('/', ofExpress.rateLimit<express.Request, express.Response>(new Keyed('5/s'), {
  key: (request, context) => context.path,
  answer: (refusal, request, response) => response.status(refusal.status).json(refusal)
}), (request, response) => { response.send('') })
const passed: number = limit.counts.passed + limit.counts['over-limit'] + limit.counts.undecided
const shared = new Shared('redis://127.0.0.1', '100/min', { whenGone: 'local', processes: 4 })
app.use(ofExpress.rateLimit(shared, { key: client({ trust: 1 }), waitWithin: '2s', onRefused: ({ reason }) => reason === 'undecided' }))

const fastify = Fastify()
fastify.register(ofFastify.rateLimit({ policy: 'concurrency', permits: 5 }, { key: peer() }))
fastify.get('/', { onRequest: ofFastify.rateLimit('5/s').onRequest }, async () => '')

const hono = new Hono()
hono.use(ofHono.rateLimit(new Limiter('5/s'), { headers: false }), ofHono.rateLimit(shared))
hono.get('/', ofHono.rateLimit('5/s', { answer: (refusal, context) => context.text(refusal.detail) }), (context) => context.text(''))

const koa = new Koa()
koa.use(ofKoa.rateLimit(shared))
fastify.register(ofFastify.rateLimit(shared))
koa.use(ofKoa.rateLimit<Koa.Context>('5/s', { key: (request, context) => context.ip, answer: (refusal, context) => { context.body = refusal.problem() } }))

const polite: typeof fetch = pace(fetch, { limiter: new Limiter('5/s'), jitter: 0, spread: false, maxHold: '1min', maxWait: 500, maxWaiting: 5, onHold: (ms: number) => ms })
const agent = new Agent().compose(interceptor({ limiter: new Limiter('5/s') }))

console.log(passed, polite, agent)

// @ts-expect-error: there is no such option
ofExpress.rateLimit('5/s', { keys: peer() })
// @ts-expect-error: proxies are needed
client({})
// @ts-expect-error: there is no such dialect
ofKoa.rateLimit('5/s', { headers: { dialects: ['newest'] } })
// @ts-expect-error: a limiter is no text
pace(fetch, { limiter: '5/s' })
