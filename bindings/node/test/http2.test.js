// Limits of servers that speak HTTP/2: their responses lack properties that those of HTTP/1 have.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import http2 from 'node:http2'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import { serve } from '@hono/node-server'
import Fastify from 'fastify'
import { Hono } from 'hono'
import Koa from 'koa'
import { Keyed, Limiter, ManualClock, Shared } from 'rategate'
import { rateLimit } from 'rategate/express'
import * as ofFastify from 'rategate/fastify'
import * as ofHono from 'rategate/hono'
import * as ofKoa from 'rategate/koa'

/**
 * Serves requests behind a limit, and counts them. A path of `/hang` has no response; `before`
 * comes before the limit.
 */
async function serving (context, limit, { before, handle = (request, response) => response.end('hello') } = {}) {
  const calls = { arrived: 0, handled: 0, closed: 0 }
  const server = http2.createServer(async (request, response) => {
    calls.arrived++
    response.once('close', () => calls.closed++)
    await before?.(request, response)
    limit(request, response, () => {
      calls.handled++
      if (request.url !== '/hang') handle(request, response)
    })
  }).listen(0, '127.0.0.1')
  return { calls, ...await connected(context, server) }
}

/** Connects to a server. Returns a function that sends it a request, and one that reads the response. */
async function connected (context, server) {
  if (!server.listening) await once(server, 'listening')
  const session = http2.connect(`http://127.0.0.1:${server.address().port}`)
  context.after(() => {
    session.destroy()
    server.close()
  })
  const send = (path = '/') => session.request({ ':path': path })
  async function get (path) {
    const request = send(path)
    const [headers] = await once(request, 'response')
    let text = ''
    for await (const part of request.setEncoding('utf8')) text += part
    return { status: headers[':status'], headers, text }
  }
  return { send, get }
}

async function leave (request, calls) {
  const closed = calls.closed
  request.on('error', () => {}).close(http2.constants.NGHTTP2_CANCEL)
  while (calls.closed === closed) await sleep(1)
}

test('requests of HTTP/2 are limited by their peer and told so', async (context) => {
  const limit = rateLimit('1 per any hour', { clock: new ManualClock() })
  const { get, calls } = await serving(context, limit)
  const passed = await get()
  assert.deepEqual([passed.status, passed.text, passed.headers.ratelimit], [200, 'hello', '"default";r=0;t=3600'])
  const { status, headers, text } = await get()
  assert.deepEqual([status, headers['retry-after'], headers['content-type']], [429, '3600', 'application/problem+json'])
  assert.equal(JSON.parse(text).title, 'Quota Exceeded')
  assert.deepEqual([calls.handled, limit.limiter.size, limit.limiter.remaining('127.0.0.1')], [1, 1, 0])
})

test('an operation in flight ends with its response, and with one whose client has left', async (context) => {
  const keyed = new Keyed({ policy: 'concurrency', permits: 1 })
  const { get, send, calls } = await serving(context, rateLimit(keyed, { headers: false }))
  assert.deepEqual([(await get()).status, (await get()).status], [200, 200])
  const hangs = send('/hang')
  while (calls.handled < 3) await sleep(1)
  assert.equal((await get()).status, 429)
  await leave(hangs, calls)
  assert.equal((await get()).status, 200)
})

test('an operation in flight of a client that left before its turn ends at once', async (context) => {
  const limiter = new Limiter({ policy: 'concurrency', permits: 1 })
  let go = Promise.resolve()
  const { get, send, calls } = await serving(context, rateLimit(limiter, { headers: false }), { before: () => go })
  let release
  go = new Promise((resolve) => { release = resolve })
  const leaves = send()
  while (calls.arrived < 1) await sleep(1)
  await leave(leaves, calls)
  release()
  go = undefined
  await sleep(1)
  assert.equal(limiter.remaining, 1)
  assert.equal((await get()).status, 200)
})

test('a request whose client leaves while it waits makes way', async (context) => {
  const limiter = new Limiter('1/h', { clock: new ManualClock() })
  const limit = rateLimit(limiter, { headers: false, waitWithin: '2h' })
  const { get, send, calls } = await serving(context, limit)
  assert.equal((await get()).status, 200)
  const leaves = send()
  while (limiter.waiting < 1) await sleep(1)
  await leave(leaves, calls)
  assert.deepEqual([limiter.waiting, calls.handled, limit.counts.passed], [0, 1, 1])
})

test('a client that leaves while the store is asked takes nothing', async (context) => {
  const shared = new Shared('redis://127.0.0.1:1', '5/h')
  const refunds = []
  let reply
  shared.check = () => new Promise((resolve) => { reply = () => resolve({ grant: { remaining: 4 }, remaining: 4 }) })
  shared.refund = (key) => refunds.push(key)
  const limit = rateLimit(shared)
  const { send, calls } = await serving(context, limit)
  const leaves = send()
  while (reply === undefined) await sleep(1)
  await leave(leaves, calls)
  reply()
  await sleep(1)
  assert.deepEqual([refunds, calls.handled, limit.counts.passed], [['127.0.0.1'], 0, 0])
})

test('permits return with a response that was sent, and not with one that was not', async (context) => {
  const limit = rateLimit('5/h', { clock: new ManualClock(), refundWhen: ({ statusCode }) => statusCode === 200 })
  const large = 'a'.repeat(2 ** 20)
  const handle = (request, response) => response.end(request.url === '/large' ? large : 'hello')
  const { get, send, calls } = await serving(context, limit, { handle })
  const left = () => limit.limiter.remaining('127.0.0.1')
  assert.equal((await get()).status, 200)
  while (calls.closed < 1) await sleep(1)
  assert.equal(left(), 5)
  const hangs = send('/hang')
  while (calls.handled < 2) await sleep(1)
  await leave(hangs, calls)
  assert.equal(left(), 4)
  // It is ended, but its client has not read all of it.
  const stalls = send('/large')
  while (calls.handled < 3) await sleep(1)
  await leave(stalls, calls)
  assert.equal(left(), 3)
})

const SERVERS = {
  fastify: async (limit, clock) => {
    const app = Fastify({ http2: true })
    app.register(ofFastify.rateLimit(limit, { clock }))
    app.get('/', async () => 'hello')
    await app.listen({ host: '127.0.0.1', port: 0 })
    return app.server
  },
  hono: (limit, clock) => {
    const app = new Hono()
    app.use(ofHono.rateLimit(limit, { clock }))
    app.get('/', (context) => context.text('hello'))
    return serve({ fetch: app.fetch, createServer: http2.createServer, hostname: '127.0.0.1', port: 0 })
  },
  koa: (limit, clock) => {
    const app = new Koa()
    app.use(ofKoa.rateLimit(limit, { clock }))
    app.use((context) => { context.body = 'hello' })
    return http2.createServer(app.callback()).listen(0, '127.0.0.1')
  }
}

for (const [name, start] of Object.entries(SERVERS)) {
  test(`${name}: requests of HTTP/2 are limited`, async (context) => {
    const { get } = await connected(context, await start('1 per any hour', new ManualClock()))
    const passed = await get()
    assert.deepEqual([passed.status, passed.text, passed.headers.ratelimit], [200, 'hello', '"default";r=0;t=3600'])
    const refused = await get()
    assert.deepEqual([refused.status, refused.headers['retry-after']], [429, '3600'])
    assert.equal(JSON.parse(refused.text).title, 'Quota Exceeded')
  })
}
