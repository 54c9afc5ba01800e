// Times the package beside others, in one run. Figures of different runs do not compare.
import { IncomingMessage, ServerResponse } from 'node:http'

import express from 'express'
import { MemoryStore, rateLimit as expressRateLimit } from 'express-rate-limit'
import { RateLimiterMemory } from 'rate-limiter-flexible'
import { RateLimiter } from 'limiter'
import { Keyed, Limiter } from 'rategate'
import { client, rateLimit } from 'rategate/express'

import { shared } from './shared.js'
import { waits } from './waits.js'

const ROUNDS = 9
const MANY = 1_000_000_000
/** The limit of each key. It is in use: keys that are fresh again give their slots to others. */
const EACH = 100_000
const HOUR_MS = 3_600_000
const KEYS = Array.from({ length: 10_000 }, (_, at) => `client-${at * 7919}`)

/** Times contenders in turns, and returns the median nanoseconds of one call of each. */
async function times (contenders) {
  const figures = contenders.map(() => [])
  for (let round = 0; round < ROUNDS; round++) {
    for (const [at, { calls, run }] of contenders.entries()) {
      global.gc()
      const begin = process.hrtime.bigint()
      await run(calls)
      figures[at].push(Number(process.hrtime.bigint() - begin) / calls)
    }
  }
  return figures.map((figure) => figure.sort((a, b) => a - b)[ROUNDS >> 1])
}

function print (title, contenders, figures) {
  console.log(`\n${title}`)
  for (const [at, { name }] of contenders.entries()) {
    const ratio = at === 0 ? '' : `  ${(figures[at] / figures[0]).toFixed(2)}x`
    console.log(`  ${name.padEnd(44)}${figures[at].toFixed(1).padStart(9)} ns${ratio}`)
  }
}

async function table (title, contenders) {
  print(title, contenders, await times(contenders))
}

const loop = (call) => (calls) => {
  for (let at = 0; at < calls; at++) call(at)
}

const limiter = new Limiter(`${MANY}/s`)
const local = limiter.local(64)
const empty = new Limiter('1/h')
empty.tryAcquire()
const bucket = new RateLimiter({ tokensPerInterval: MANY, interval: 'second' })
const hour = new RateLimiter({ tokensPerInterval: 1, interval: 'hour' })
hour.tryRemoveTokens(1)
await table('a try that is granted', [
  { name: 'rategate tryAcquire()', calls: 1e6, run: loop(() => limiter.tryAcquire()) },
  { name: 'rategate tryAcquire(1)', calls: 1e6, run: loop(() => limiter.tryAcquire(1)) },
  { name: 'rategate local(64).tryAcquire()', calls: 1e6, run: loop(() => local.tryAcquire()) },
  { name: 'rategate check()', calls: 1e5, run: loop(() => limiter.check()) },
  { name: 'limiter tryRemoveTokens(1)', calls: 1e6, run: loop(() => bucket.tryRemoveTokens(1)) },
  { name: 'performance.now()', calls: 1e6, run: loop(() => performance.now()) }
])
await table('a try that is denied', [
  { name: 'rategate tryAcquire()', calls: 1e6, run: loop(() => empty.tryAcquire()) },
  { name: 'rategate peek()', calls: 1e6, run: loop(() => empty.peek()) },
  { name: 'limiter tryRemoveTokens(1)', calls: 1e6, run: loop(() => hour.tryRemoveTokens(1)) }
])

const keyed = new Keyed(`${EACH}/h`)
const fresh = new Keyed(`${MANY}/s`)
const flexible = new RateLimiterMemory({ points: EACH, duration: 3600 })
const store = new MemoryStore()
store.init({ windowMs: HOUR_MS })
await table('a try for one of 10 000 keys', [
  { name: 'rategate tryAcquire(key)', calls: 4e5, run: loop((at) => keyed.tryAcquire(KEYS[at % 10_000])) },
  { name: 'rategate tryAcquire(key), always fresh', calls: 4e5, run: loop((at) => fresh.tryAcquire(KEYS[at % 10_000])) },
  { name: 'rategate check(key)', calls: 1e5, run: loop((at) => keyed.check(KEYS[at % 10_000])) },
  {
    name: 'rate-limiter-flexible consume(key)',
    calls: 1e5,
    run: async (calls) => {
      for (let at = 0; at < calls; at++) await flexible.consume(KEYS[at % 10_000])
    }
  },
  {
    name: 'express-rate-limit MemoryStore increment(key)',
    calls: 1e5,
    run: async (calls) => {
      for (let at = 0; at < calls; at++) await store.increment(KEYS[at % 10_000])
    }
  }
])
store.shutdown()

await table('a wait that is granted at once', [
  {
    name: 'rategate await acquire()',
    calls: 1e5,
    run: async (calls) => {
      for (let at = 0; at < calls; at++) await limiter.acquire()
    }
  },
  {
    name: 'limiter await removeTokens(1)',
    calls: 1e5,
    run: async (calls) => {
      for (let at = 0; at < calls; at++) await bucket.removeTokens(1)
    }
  }
])

/** A response with what express-rate-limit calls of those of Express. */
class Response extends ServerResponse {}
for (const name of ['append', 'get', 'set']) Response.prototype[name] = express.response[name]

/** Makes the request and the response of a call, without a connection, and runs a middleware. */
const through = (middleware) => async (calls) => {
  const socket = { remoteAddress: '203.0.113.7' }
  for (let at = 0; at < calls; at++) {
    const request = new IncomingMessage(socket)
    request.headers = { 'x-forwarded-for': '203.0.113.9' }
    // Express has it.
    request.ip = socket.remoteAddress
    request.app = { get: () => false }
    const response = new Response(request)
    let isNext = false
    const done = middleware(request, response, (error) => {
      // Or the time of an error would be taken for that of a pass.
      if (error) throw error
      isNext = true
    })
    if (!isNext) await done
  }
}
const none = (request, response, next) => next()
const window = { policy: 'fixed-window', permits: 1_000_000, period: '1h' }
const others = { limit: 1_000_000, windowMs: HOUR_MS, validate: false, legacyHeaders: false }
const middlewares = [
  { name: 'rategate/express', middleware: rateLimit(`${MANY}/s`) },
  { name: 'rategate/express, a window as below', middleware: rateLimit(window) },
  { name: 'rategate/express, behind a proxy', middleware: rateLimit(`${MANY}/s`, { key: client({ trust: 1 }) }) },
  { name: 'rategate/express, without fields', middleware: rateLimit(`${MANY}/s`, { headers: false }) },
  { name: 'express-rate-limit, draft-8: the same fields', middleware: expressRateLimit({ ...others, standardHeaders: 'draft-8' }) },
  { name: 'express-rate-limit, its own four', middleware: expressRateLimit({ ...others, legacyHeaders: true }) },
  { name: 'express-rate-limit, without fields', middleware: expressRateLimit(others) }
].map(({ name, middleware }) => ({ name, calls: 5e4, run: through(middleware) }))
const [bare, ...all] = await times([{ calls: 5e4, run: through(none) }, ...middlewares])
print(`a middleware, added to ${bare.toFixed(0)} ns of a request and a response`, middlewares, all.map((figure) => figure - bare))

await shared()
await waits()
process.exit()
