// The middlewares in the frameworks themselves, on the loopback.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, request as requestOf } from 'node:http'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import { serve } from '@hono/node-server'
import express from 'express'
import Fastify from 'fastify'
import { Hono } from 'hono'
import Koa from 'koa'
import { Keyed, Limiter, ManualClock } from 'rategate'
import * as ofExpress from 'rategate/express'
import * as ofFastify from 'rategate/fastify'
import * as ofHono from 'rategate/hono'
import * as ofKoa from 'rategate/koa'

const { client, header, method, rateLimit } = ofExpress

/** Each starts a server whose handler follows these limits, and returns it with its address. */
const FRAMEWORKS = {
  express: {
    rateLimit,
    answer: (refusal, request, response) => response.type('text').send(refusal.detail),
    start: (limits, handle) => {
      const app = express()
      for (const limit of limits) app.use(limit)
      app.get('/', async (request, response) => response.send(await handle()))
      app.use((error, request, response, next) => response.status(500).send(error.message))
      return app.listen(0, '127.0.0.1')
    }
  },
  fastify: {
    rateLimit: ofFastify.rateLimit,
    answer: (refusal, request, reply) => reply.type('text/plain').send(refusal.detail),
    start: async (limits, handle) => {
      const app = Fastify()
      for (const limit of limits) app.register(limit)
      app.get('/', async (request, reply) => reply.type('text/plain').send(await handle()))
      app.setErrorHandler((error, request, reply) => reply.code(500).send(error.message))
      await app.listen({ host: '127.0.0.1', port: 0 })
      return app.server
    }
  },
  hono: {
    rateLimit: ofHono.rateLimit,
    answer: (refusal, context) => context.text(refusal.detail, refusal.status),
    start: (limits, handle) => {
      const app = new Hono()
      for (const limit of limits) app.use(limit)
      app.get('/', async () => new Response(await handle()))
      app.onError((error, context) => context.text(error.message, 500))
      return serve({ fetch: app.fetch, hostname: '127.0.0.1', port: 0 })
    }
  },
  koa: {
    rateLimit: ofKoa.rateLimit,
    answer: (refusal, context) => { context.body = refusal.detail },
    start: (limits, handle) => {
      const app = new Koa()
      app.use(async (context, next) => {
        try {
          await next()
        } catch (error) {
          context.status = 500
          context.body = error.message
        }
      })
      for (const limit of limits) app.use(limit)
      app.use(async (context) => { context.body = await handle() })
      return app.listen(0, '127.0.0.1')
    }
  }
}

for (const [name, { rateLimit, answer, start }] of Object.entries(FRAMEWORKS)) {
  /** Starts a server, and returns a function that sends a request and reads the response. */
  const serving = async (context, limits, handle = () => 'hello') => {
    const server = await start([limits].flat(), handle)
    if (!server.listening) await once(server, 'listening')
    context.after(() => new Promise((resolve) => {
      server.close(resolve)
      server.closeAllConnections()
    }))
    const url = `http://127.0.0.1:${server.address().port}/`
    const get = async (headers, options) => {
      const response = await fetch(url, { headers, ...options })
      return { status: response.status, fields: response.headers, text: await response.text() }
    }
    return { get, server, url }
  }

  test(`${name}: all responses report the limit, and a refusal says exactly when to come back`, async (context) => {
    const clock = new ManualClock()
    const refusals = []
    const limit = rateLimit('2 per any minute', { clock, onRefused: (refusal) => refusals.push(refusal.reason) })
    const { get } = await serving(context, limit)
    for (const status of ['"default";r=1;t=60', '"default";r=0;t=59']) {
      const response = await get()
      assert.deepEqual([response.status, response.text, ...['ratelimit', 'ratelimit-policy', 'retry-after'].map((field) => response.fields.get(field))],
        [200, 'hello', status, '"default";q=2;w=60', null])
      clock.advance('1.5s')
    }
    const { status, fields, text } = await get()
    assert.deepEqual([status, fields.get('content-type'), fields.get('retry-after'), fields.get('ratelimit')],
      [429, 'application/problem+json', '57', '"default";r=0;t=57'])
    assert.deepEqual(JSON.parse(text), {
      type: 'https://iana.org/assignments/http-problem-types#quota-exceeded',
      title: 'Quota Exceeded',
      status: 429,
      detail: 'The limit is reached.',
      retry_after: 57,
      retry_after_ms: 57_000,
      'violated-policies': ['default']
    })
    clock.advance('56.999999999s')
    assert.equal((await get()).fields.get('retry-after'), '1')
    clock.advance('1ns')
    assert.equal((await get()).status, 200)
    assert.deepEqual([limit.counts.passed, limit.counts['over-limit'], refusals], [3, 2, ['over-limit', 'over-limit']])
    assert.equal(limit.limiter.size, 1)
  })

  test(`${name}: two limits both report, and the stricter refuses`, async (context) => {
    const clock = new ManualClock()
    const limits = [
      rateLimit('5 per any hour', { clock, headers: { name: 'hour' } }),
      rateLimit('1 per any minute', { clock, headers: { name: 'minute' } })
    ]
    const { get } = await serving(context, limits)
    const policies = (fields) => fields.get('ratelimit').split(', ').sort()
    assert.deepEqual(policies((await get()).fields), ['"hour";r=4;t=3600', '"minute";r=0;t=60'])
    const { status, fields } = await get()
    assert.deepEqual([status, fields.get('retry-after'), policies(fields)], [429, '60', ['"hour";r=3;t=3600', '"minute";r=0;t=60']])
  })

  test(`${name}: the application answers itself, and fails as it does otherwise`, async (context) => {
    const limit = rateLimit('1 per any minute', { clock: new ManualClock(), answer })
    const { get } = await serving(context, limit)
    await get()
    const { status, fields, text } = await get()
    assert.deepEqual([status, text, fields.get('retry-after'), fields.get('ratelimit')], [429, 'The limit is reached.', '60', '"default";r=0;t=60'])
    const failing = await serving(context, rateLimit('9/s', { key: () => { throw new Error('no such user') } }))
    const failed = await failing.get()
    assert.deepEqual([failed.status, failed.text], [500, 'no such user'])
  })

  test(`${name}: a client cannot choose its key by headers that its proxy does not write`, async (context) => {
    const clock = new ManualClock()
    const limit = rateLimit('1 per any minute', { clock, key: client({ trust: 1 }) })
    const { get } = await serving(context, limit)
    const spoofed = ['6.6.6.6', '6.6.6.7', '"', 'for=1.1.1.1;', '6.6.6.6, '.repeat(500), ','.repeat(4000)]
    const statuses = []
    for (const each of spoofed) statuses.push((await get({ 'X-Forwarded-For': `${each}, 192.0.2.1`, 'X-Real-IP': each })).status)
    assert.deepEqual(statuses, [200, 429, 429, 429, 429, 429])
    // A subscriber has a /64 of addresses to choose from.
    const rotated = []
    for (let at = 1; at < 20; at++) rotated.push((await get({ 'X-Forwarded-For': `2001:db8:1:2:${at}::${at}` })).status)
    assert.deepEqual([rotated.filter((status) => status === 200).length, limit.limiter.size], [1, 2])
  })

  test(`${name}: keys are bounded in number, and a full table refuses or shares`, async (context) => {
    const clock = new ManualClock()
    const options = { clock, key: header('x-user'), maxKeys: 16 }
    const limits = ['share', 'refuse'].map((whenFull) => rateLimit('1 per any minute', { ...options, whenFull }))
    for (const [at, limit] of limits.entries()) {
      const { get } = await serving(context, limit)
      const statuses = new Map()
      for (let user = 0; user < 100; user++) {
        const { status } = await get({ 'X-User': `user ${user}` })
        statuses.set(status, (statuses.get(status) ?? 0) + 1)
      }
      assert.ok(limit.limiter.size <= 64, `${limit.limiter.size}`)
      const [expected, reason] = [[429, 'over-limit'], [503, 'too-many-keys']][at]
      assert.ok(statuses.get(expected) > 30 && statuses.get(expected) === limit.counts[reason])
    }
  })

  test(`${name}: requests without a key share, are refused, or pass`, async (context) => {
    const outcomes = {}
    for (const missing of [undefined, 'share', 'refuse', 'pass']) {
      const key = [header('x-user'), method]
      const limit = rateLimit('1 per any minute', { clock: new ManualClock(), key, missing })
      const { get, server } = await serving(context, limit)
      const without = [(await get()).status, (await get()).status]
      const { port } = server.address()
      const twice = ['a', 'b'].flatMap((user) => ['X-User', user])
      const request = requestOf({ host: '127.0.0.1', port, headers: ['Host', 'localhost', ...twice] }).end()
      const [response] = await once(request, 'response')
      response.resume()
      outcomes[missing] = [...without, response.statusCode]
    }
    assert.deepEqual(outcomes, { undefined: [200, 429, 400], share: [200, 429, 429], refuse: [400, 400, 400], pass: [200, 200, 200] })
  })

  test(`${name}: costs are counted, and one that never fits is refused with a 400`, async (context) => {
    const limit = rateLimit('5 per any minute', { clock: new ManualClock(), cost: ({ headers }) => Number(headers['x-cost']) })
    const { get } = await serving(context, limit)
    const statuses = []
    for (const cost of [3, 6, 3, 2, 0, 1]) statuses.push((await get({ 'X-Cost': cost })).status)
    assert.deepEqual(statuses, [200, 400, 429, 200, 200, 429])
    const { status, text } = await get({ 'X-Cost': 'many' })
    assert.ok(status === 500 && text.includes('permits is NaN'))
  })

  test(`${name}: permits in flight return when the response has ended or its client has left`, async (context) => {
    const limit = rateLimit({ policy: 'concurrency', permits: 2 })
    const ends = []
    const { get, server } = await serving(context, limit, () => new Promise((resolve) => ends.push(() => resolve('done'))))
    const first = get()
    const socket = connect(server.address().port, '127.0.0.1').on('error', () => {})
    socket.write('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n')
    while (ends.length < 2) await sleep(1)
    const refused = await get()
    assert.deepEqual([refused.status, refused.fields.get('retry-after'), refused.fields.get('ratelimit-policy')],
      [429, null, '"default";q=2;qu="concurrent-requests"'])
    socket.destroy()
    const key = '127.0.0.1'
    while (limit.limiter.remaining(key) < 1) await sleep(1)
    ends.forEach((end) => end())
    const { status, fields } = await first
    assert.deepEqual([status, fields.get('ratelimit')], [200, '"default";r=1'])
    while (limit.limiter.remaining(key) < 2) await sleep(1)
  })

  test(`${name}: requests wait in order, and one whose client leaves makes way`, async (context) => {
    const clock = new ManualClock()
    const limiter = new Limiter('1 per any minute', { clock })
    const limit = rateLimit(limiter, { waitWithin: '90s', headers: { quota: 1, window: '1min' } })
    const { get } = await serving(context, limit)
    assert.equal((await get()).fields.get('ratelimit'), '"default";r=0;t=60')
    const control = new AbortController()
    const leaves = get({}, { signal: control.signal }).catch((error) => error.name)
    while (limiter.waiting < 1) await sleep(1)
    // Behind it the wait is too long.
    const late = await get()
    assert.deepEqual([late.status, late.fields.get('retry-after')], [429, '30'])
    control.abort()
    assert.equal(await leaves, 'AbortError')
    while (limiter.waiting > 0) await sleep(1)
    const waits = get()
    while (limiter.waiting < 1) await sleep(1)
    clock.advance('60s')
    await clock.settle()
    const waited = await waits
    assert.deepEqual([waited.status, waited.fields.get('ratelimit'), limit.counts.passed], [200, '"default";r=0;t=60', 2])
    limiter.close()
    assert.deepEqual([(await get()).status, limit.counts.closed], [503, 1])
  })

  test(`${name}: permits return with a response that does not count`, async (context) => {
    const limit = rateLimit(new Keyed('2 per any minute'), { refundWhen: ({ statusCode }) => statusCode === 200 })
    const { get } = await serving(context, limit)
    for (let turn = 0; turn < 5; turn++) {
      const { status, fields } = await get()
      // The numbers of a table that is given are not known.
      assert.deepEqual([status, fields.get('ratelimit')], [200, null])
      while (limit.limiter.remaining('127.0.0.1') < 2) await sleep(1)
    }
  })
}

test('a peer without an address shares the limit of all such', async (context) => {
  const limit = rateLimit('1 per any minute', { clock: new ManualClock() })
  const server = createServer((request, response) => limit(request, response, () => response.end()))
  const socketPath = join(tmpdir(), `rategate-${process.pid}.sock`)
  server.listen(socketPath)
  await once(server, 'listening')
  context.after(() => server.close())
  const statuses = []
  for (let turn = 0; turn < 2; turn++) {
    const request = requestOf({ socketPath }).end()
    const [response] = await once(request, 'response')
    response.resume()
    statuses.push(response.statusCode)
  }
  assert.deepEqual(statuses, [200, 429])
})

test('a header with ten thousand hops costs no more than its last ones', async (context) => {
  const limit = rateLimit('1 per any minute', { clock: new ManualClock(), key: client({ trust: 2 }) })
  const server = createServer({ maxHeaderSize: 2 ** 20 }, (request, response) => limit(request, response, () => response.end()))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  context.after(() => server.close())
  const hops = (first) => ({ 'X-Forwarded-For': `${first}, `.repeat(10_000) + '192.0.2.1, 10.0.0.1' })
  const url = `http://127.0.0.1:${server.address().port}/`
  const statuses = []
  for (const first of ['6.6.6.6', '_a', '::1']) statuses.push((await fetch(url, { headers: hops(first) })).status)
  assert.deepEqual(statuses, [200, 429, 429])
  // Hops that are all trusted are read only so far.
  const networks = client({ trust: ['0.0.0.0/0'] })
  assert.equal(networks({ socket: { remoteAddress: '10.0.0.1' }, headers: { 'x-forwarded-for': '7.7.7.7, ' + '6.6.6.6, '.repeat(10_000) } }), '6.6.6.6')
})

test('what is announced is what the limit is', async () => {
  const policies = {
    '10/s burst 5': '"default";q=5;w=1',
    '5/min': '"default";q=5;w=60',
    '100 per any hour': '"default";q=100;w=3600'
  }
  const announced = async (limit, options) => {
    const fields = new Map()
    const response = { getHeader: (name) => fields.get(name), setHeader: (name, value) => fields.set(name, value), once: () => {} }
    rateLimit(limit, options)({ socket: { remoteAddress: '::1' }, headers: {} }, response, () => {})
    return fields.get('RateLimit-Policy')
  }
  for (const [limit, policy] of Object.entries(policies)) assert.equal(await announced(limit), policy)
  assert.equal(await announced({ policy: 'fixed-window', permits: 7, period: '1h' }), '"default";q=7;w=3600')
  assert.equal(await announced({ policy: 'concurrency', permits: 3 }), '"default";q=3;qu="concurrent-requests"')
  assert.equal(await announced('5/min', { headers: { name: 'p', quota: 6, unit: 'tokens' } }), '"p";q=6;w=60;qu="tokens"')
  assert.equal(await announced('5/min', { headers: false }), undefined)
  assert.throws(() => rateLimit(new Limiter('5/s'), { headers: {} }), /needs a quota/)
  assert.throws(() => rateLimit(new Limiter('5/s'), { key: method }), /takes no key/)
  assert.throws(() => rateLimit(new Keyed('5/s'), { maxKeys: 5 }), /no option 'maxKeys'/)
})

test('a limit that time does not refill reports no time', () => {
  const limiter = new Limiter({ policy: 'backfill-pool', pool: 3 })
  limiter.refill(2)
  const middleware = rateLimit(limiter, { headers: { quota: 3 } })
  for (const text of ['"default";r=1', '"default";r=0']) {
    const fields = new Map()
    const response = { getHeader: (name) => fields.get(name), setHeader: (name, value) => fields.set(name, value) }
    middleware({}, response, () => {})
    assert.deepEqual(Object.fromEntries(fields), { 'RateLimit-Policy': '"default";q=3', RateLimit: text })
  }
})

test('Hono without a server of Node is refused with a sentence', async () => {
  const app = new Hono()
  app.use(ofHono.rateLimit('5/s'))
  app.onError((error, context) => context.text(error.message, 500))
  assert.match(await (await app.request('/')).text(), /@hono\/node-server/)
})

test('koa: the response of a handler that throws has the fields', async (context) => {
  const app = new Koa()
  app.silent = true
  app.use(ofKoa.rateLimit('2/h')).use(() => { throw Object.assign(new Error('broken'), { headers: { 'X-Own': '1' } }) })
  const server = app.listen(0, '127.0.0.1')
  await once(server, 'listening')
  context.after(() => new Promise((resolve) => server.close(resolve)))
  const response = await fetch(`http://127.0.0.1:${server.address().port}`)
  assert.deepEqual([response.status, response.headers.get('x-own')], [500, '1'])
  assert.match(response.headers.get('ratelimit'), /r=1/)
  assert.ok(response.headers.has('ratelimit-policy'))
})
