// Servers of several processes with one limit, over a real redis-server that the tests start.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { after, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import { serve } from '@hono/node-server'
import express from 'express'
import Fastify from 'fastify'
import { Hono } from 'hono'
import Koa from 'koa'
import { Shared } from 'rategate'
import { header, rateLimit } from 'rategate/express'
import * as ofFastify from 'rategate/fastify'
import * as ofHono from 'rategate/hono'
import * as ofKoa from 'rategate/koa'

import { Server, hasServer, options } from './redis.js'

/** The key of a client on the loopback. */
const KEY = '127.0.0.1'

let server
before(async () => {
  if (hasServer) server = await Server.start()
})
after(() => server?.kill())

let names = 0
// A budget longer than any delay, also under valgrind: how soon a reply comes is not tested.
const shared = (limit, { url = server.url, ...more } = {}) => new Shared(url, limit, { budget: '20s', name: `servers-${++names}`, ...more })

/** Has a server listen, and returns a function that sends it a request and reads the response. */
async function serving (context, listening) {
  if (!listening.listening) await once(listening, 'listening')
  context.after(() => new Promise((resolve) => {
    listening.close(resolve)
    listening.closeAllConnections()
  }))
  return getterOf(listening.address().port)
}

function getterOf (port) {
  return async ({ path = '/', ...given } = {}) => {
    const response = await fetch(`http://127.0.0.1:${port}${path}`, given)
    return { status: response.status, fields: response.headers, text: await response.text() }
  }
}

/** Serves an application of Express whose handler counts its calls. */
async function appOf (context, limit, handle = (request, response) => response.send('hello')) {
  const app = express()
  const calls = { arrived: 0, handled: 0, closed: 0 }
  app.get('/free', (request, response) => response.send('free'))
  app.use((request, response, next) => {
    calls.arrived++
    response.once('close', () => calls.closed++)
    next()
  })
  app.use(limit)
  app.get('/', (request, response) => {
    calls.handled++
    handle(request, response)
  })
  app.use((error, request, response, next) => response.status(500).send(error.message))
  return { get: await serving(context, app.listen(0, '127.0.0.1')), calls }
}

const reported = ({ status, fields }) => [status, fields.get('ratelimit'), fields.get('ratelimit-policy'), fields.get('retry-after')]
/** Says if a request passes in an hour, on a machine that is slow. */
const isHour = ({ fields }) => fields.get('retry-after') > 3500 && fields.get('retry-after') <= 3600
const statusesOf = async (gets) => (await Promise.all(gets)).map(({ status }) => status).sort()

test('of all requests to two processes, as many pass as the limit lets pass', options, async (context) => {
  const program = `
    import express from 'express'
    import { Shared } from 'rategate'
    import { client, rateLimit } from 'rategate/express'
    const limit = new Shared('${server.url}', '30 per any hour', { budget: '20s' })
    await limit.ready()
    const app = express()
    app.use(rateLimit(limit, { key: client({ trust: 1 }) })).get('/', (request, response) => response.send('hello'))
    const listening = app.listen(0, '127.0.0.1', () => console.log(listening.address().port))`
  const start = async () => {
    const process_ = spawn(process.execPath, ['--input-type=module', '-e', program], { cwd: import.meta.dirname ?? '.', stdio: ['ignore', 'pipe', 'inherit'] })
    context.after(() => process_.kill())
    const [port] = await once(process_.stdout, 'data')
    return getterOf(Number(port))
  }
  const gets = await Promise.all([start(), start()])
  const from = (address) => ({ headers: { 'X-Forwarded-For': address } })
  const responses = await Promise.all(Array.from({ length: 60 }, (_, at) => gets[at % 2](from('192.0.2.7'))))
  const passed = responses.filter(({ status }) => status === 200)
  assert.equal(passed.length, 30)
  const left = passed.map(({ fields }) => fields.get('ratelimit')).sort()
  assert.deepEqual(left, Array.from({ length: 30 }, (_, at) => `"default";r=${at}`).sort())
  for (const refused of responses.filter(({ status }) => status !== 200)) {
    assert.equal(refused.status, 429)
    assert.ok(isHour(refused))
  }
  // Each process has responses of both kinds, or one decided alone.
  for (const at of [0, 1]) assert.equal(new Set(responses.filter((_, of) => of % 2 === at).map(({ status }) => status)).size, 2)
  assert.equal((await gets[0](from('192.0.2.8'))).status, 200)
})

test('a refused request passes at the time of its Retry-After, and all report the limit', options, async (context) => {
  const limit = rateLimit(shared('1 per any 2s'))
  const { get } = await appOf(context, limit)
  assert.deepEqual(reported(await get()), [200, '"default";r=0', '"default";q=1;w=2', null])
  const refused = await get()
  const after = refused.fields.get('retry-after')
  assert.deepEqual(reported(refused), [429, `"default";r=0;t=${after}`, '"default";q=1;w=2', after])
  const { detail, retry_after_ms: ms } = JSON.parse(refused.text)
  assert.ok(detail === 'The limit is reached.' && Math.ceil(ms / 1000) === Number(after) && after <= 2)
  await sleep(after * 1000)
  assert.equal((await get()).status, 200)
  assert.deepEqual([limit.counts.passed, limit.counts['over-limit']], [2, 1])
})

test('a limit is announced as it is, and several only by a given quota', options, async (context) => {
  const policyOf = async (limit, given) => reported(await (await appOf(context, rateLimit(shared(limit), given))).get())[2]
  assert.equal(await policyOf('10/s burst 5'), '"default";q=5;w=1')
  assert.equal(await policyOf([{ policy: 'fixed-window', permits: 7, period: '1h' }]), '"default";q=7;w=3600')
  assert.equal(await policyOf('5/min', { headers: false }), null)
  for (const several of ['10/s; 100 per any hour', ['10/s', '100 per any hour']]) {
    assert.equal(await policyOf(several), null)
    assert.equal(await policyOf(several, { headers: { quota: 10, window: '1s' } }), '"default";q=10;w=1')
    assert.throws(() => rateLimit(shared(several), { headers: { name: 'minute' } }), /needs a quota/)
  }
  assert.throws(() => rateLimit(shared('5/min'), { maxKeys: 5 }), /no option 'maxKeys'/)
})

test('keys, costs and requests without a key are as of other limits', options, async (context) => {
  const cost = ({ headers }) => Number(headers['x-cost'] ?? 1)
  const { get } = await appOf(context, rateLimit(shared('5/h'), { key: header('x-user'), cost }))
  const statuses = []
  for (const [user, cost] of [['a', 6], ['a', 3], ['a', 3], ['a', 2], ['a', 0], ['b', 5], [undefined, 4], [undefined, 2], ['', 5]]) {
    const headers = { 'X-Cost': cost, ...(user === undefined ? {} : { 'X-User': user }) }
    statuses.push((await get({ headers })).status)
  }
  assert.deepEqual(statuses, [400, 200, 429, 200, 200, 200, 200, 429, 200])
  const denied = await get({ headers: { 'X-Cost': 4 } })
  assert.match(denied.fields.get('ratelimit'), /^"default";r=1;t=/)
})

test('permits that are borrowed decide requests, too', options, async (context) => {
  const limit = rateLimit(shared('100/h', { mode: 'leased', lease: '10s', leasePermits: 20 }))
  const { get } = await appOf(context, limit)
  const statuses = await statusesOf(Array.from({ length: 20 }, () => get()))
  assert.ok(statuses.every((status) => status === 200) && limit.limiter.counts.lease.granted > 0)
})

test('without the store requests are refused with a 503, pass, or pass by a part of the limit', options, async (context) => {
  const own = await Server.start()
  context.after(() => own.kill())
  const refusals = []
  const onRefused = (refusal) => refusals.push(refusal.reason)
  const apps = {}
  for (const whenGone of ['deny', 'allow', 'local']) {
    const more = whenGone === 'local' ? { processes: 4 } : {}
    const limit = rateLimit(shared('8 per any 2s', { url: own.url, whenGone, ...more }), { onRefused })
    apps[whenGone] = { limit, ...await appOf(context, limit) }
    assert.equal((await apps[whenGone].get()).status, 200)
  }
  await own.kill()
  const { limit, get } = apps.deny
  for (let turn = 1; turn <= 8; turn++) {
    const gone = await get()
    const after = gone.fields.get('retry-after')
    assert.deepEqual(reported(gone), [503, null, null, after])
    assert.ok(Number(after) >= 1)
    const { type, title, detail, retry_after: seconds } = JSON.parse(gone.text)
    assert.deepEqual([type, title, detail, String(seconds)], ['about:blank', 'Service Unavailable', 'The limit cannot be decided now.', after])
    assert.deepEqual([limit.counts.passed, limit.counts.undecided, limit.counts['over-limit'], refusals.length], [1, turn, 0, turn])
  }
  assert.ok(refusals.every((reason) => reason === 'undecided'))
  for (let turn = 0; turn < 12; turn++) assert.deepEqual(reported(await apps.allow.get()), [200, null, null, null])
  // The part of a process begins empty, as the store may have granted all of it.
  while ((await apps.local.get()).status !== 200) await sleep(50)
  await sleep(2500)
  const begin = performance.now()
  const responses = await Promise.all(Array.from({ length: 8 }, () => apps.local.get()))
  const windows = 1 + Math.floor((performance.now() - begin) / 2000)
  const passed = responses.filter(({ status }) => status === 200)
  assert.ok(passed.length >= 2 && passed.length <= 2 * windows, `${passed.length} passed`)
  const refused = responses.filter(({ status }) => status !== 200)
  assert.ok(refused.every((each) => each.status === 429 && /^"default";r=0;t=/.test(each.fields.get('ratelimit'))))
})

test('a wait for a store that is gone is a 503 at once', options, async (context) => {
  const own = await Server.start()
  await own.kill()
  const limit = rateLimit(shared('1/h', { url: own.url }), { waitWithin: '1h' })
  const { get } = await appOf(context, limit)
  const gone = await get()
  assert.deepEqual([gone.status, limit.counts.undecided], [503, 1])
})

test('before the part of a process begins, a request is a 503, and over the part a 429', async (context) => {
  const gone = { url: 'redis://127.0.0.1:1', budget: '50ms', whenGone: 'local', processes: 2 }
  const hourly = shared('2 per any hour', gone)
  for (const waitWithin of [undefined, '10ms']) {
    const limit = rateLimit(hourly, { waitWithin })
    const undecided = await (await appOf(context, limit)).get()
    assert.deepEqual([undecided.status, limit.counts.undecided, limit.counts['over-limit']], [503, 1, 0])
    assert.equal(undecided.fields.get('ratelimit'), null)
    assert.ok(undecided.fields.get('retry-after') >= 1)
  }
  const begun = shared('2 per any 100ms', gone)
  while (!await begun.tryAcquire(KEY)) await sleep(1)
  const limit = rateLimit(begun, { waitWithin: 0 })
  const { get } = await appOf(context, limit)
  let statuses
  do {
    statuses = await statusesOf([get(), get(), get(), get()])
  } while (!statuses.includes(429))
  assert.ok(statuses.every((status) => status === 200 || status === 429), statuses)
  assert.equal(limit.counts.undecided, 0)
})

test('the loop goes on while the store stands still', options, async (context) => {
  const own = await Server.start()
  context.after(() => own.kill())
  const limited = shared('5/h', { url: own.url, budget: '60s' })
  await limited.ready()
  const { get, calls } = await appOf(context, rateLimit(limited))
  own.process.kill('SIGSTOP')
  let isDecided = false
  const waits = get().finally(() => { isDecided = true })
  while (calls.arrived < 1) await sleep(1)
  const begin = performance.now()
  for (let turn = 0; turn < 10; turn++) assert.equal((await get({ path: '/free' })).text, 'free')
  assert.ok(!isDecided && performance.now() - begin < 20_000)
  own.process.kill('SIGCONT')
  assert.equal((await waits).status, 200)
})

test('requests wait for their permits, and one whose client leaves makes way', options, async (context) => {
  const soon = await appOf(context, rateLimit(shared('1 per any 1s'), { waitWithin: '20s' }))
  const begin = performance.now()
  assert.deepEqual(await statusesOf([soon.get(), soon.get(), soon.get()]), [200, 200, 200])
  assert.ok(performance.now() - begin >= 1900)

  const hourly = shared('1 per any hour')
  const limit = rateLimit(hourly, { waitWithin: '2h' })
  const { get, calls } = await appOf(context, limit)
  assert.equal((await get()).status, 200)
  const control = new AbortController()
  const leaves = get({ signal: control.signal }).catch((error) => error.name)
  while (hourly.waiting(KEY) < 1) await sleep(1)
  control.abort()
  assert.equal(await leaves, 'AbortError')
  while (hourly.waiting(KEY) > 0) await sleep(1)
  assert.deepEqual([calls.arrived, calls.handled, limit.counts.passed, limit.counts['over-limit']], [2, 1, 1, 0])

  const late = rateLimit(hourly, { waitWithin: '1s' })
  const refused = await (await appOf(context, late)).get()
  assert.deepEqual([refused.status, late.counts['over-limit']], [429, 1])
  assert.ok(isHour(refused))
  const costly = rateLimit(hourly, { waitWithin: '1s', cost: () => 2 })
  assert.equal((await (await appOf(context, costly)).get()).status, 400)
})

for (const waitWithin of [undefined, '1h']) {
  const how = waitWithin === undefined ? 'asks' : 'waits'
  test(`a client that leaves while the store is asked takes nothing, if it ${how}`, options, async (context) => {
    const own = await Server.start()
    context.after(() => own.kill())
    const limited = shared('1 per any hour', { url: own.url, budget: '60s' })
    await limited.ready()
    const limit = rateLimit(limited, { waitWithin })
    const { get, calls } = await appOf(context, limit)
    own.process.kill('SIGSTOP')
    const control = new AbortController()
    const leaves = get({ signal: control.signal }).catch((error) => error.name)
    while (calls.arrived < 1) await sleep(1)
    control.abort()
    assert.equal(await leaves, 'AbortError')
    while (calls.closed < 1) await sleep(1)
    own.process.kill('SIGCONT')
    // A look at what remains is behind that request in the line to the store.
    const looks = async () => [await limited.remaining(KEY), limited.counts.store.granted]
    for (let [left, granted] = await looks(); left < 1 || granted < 2; [left, granted] = await looks()) await sleep(5)
    assert.deepEqual([calls.handled, limit.counts.passed, limit.counts['over-limit'], limit.counts.undecided], [0, 0, 0, 0])
    assert.equal((await get()).status, 200)
  })
}

test('permits return with a response that does not count', options, async (context) => {
  const limited = shared('2 per any hour')
  const limit = rateLimit(limited, { refundWhen: ({ statusCode }) => statusCode === 404 })
  let status = 404
  const { get } = await appOf(context, limit, (request, response) => response.status(status).send('done'))
  for (let turn = 0; turn < 5; turn++) {
    assert.equal((await get()).status, 404)
    while (await limited.remaining(KEY) < 2) await sleep(1)
  }
  status = 200
  assert.deepEqual([(await get()).status, (await get()).status, (await get()).status], [200, 200, 429])
})

test('borrowed permits return with a response that does not count', options, async (context) => {
  const limited = shared('2/h', { mode: 'leased', lease: '1min', leasePermits: 2 })
  const limit = rateLimit(limited, { refundWhen: ({ statusCode }) => statusCode === 404 })
  const { get, calls } = await appOf(context, limit, (request, response) => response.status(404).send('done'))
  for (let turn = 1; turn <= 5; turn++) {
    assert.equal((await get()).status, 404)
    while (calls.closed < turn) await sleep(1)
  }
  assert.equal(limited.counts.lease.granted, 5)
})

test('a rejected request is a 503, a defect an error of the application, and an unknown rest is not reported', async (context) => {
  const limited = shared('5/s', { url: 'redis://127.0.0.1:1' })
  const limit = rateLimit(limited)
  const { get } = await appOf(context, limit)
  limited.check = async () => { throw new RangeError('it is invalid') }
  assert.deepEqual([(await get()).status, limit.counts.undecided], [503, 1])
  limited.check = async () => { throw new Error('broken') }
  const { status, text } = await get()
  assert.deepEqual([status, text, limit.counts.undecided], [500, 'broken', 1])
  // Such as that of borrowed permits, where the store has more.
  limited.check = async () => ({ grant: null, remaining: null, retryAfterNs: 1n, by: 'lease' })
  assert.deepEqual(reported(await get()), [429, null, null, '1'])
})

test('two limits that count together without a name are reported', async () => {
  const url = 'redis://127.0.0.1:1'
  const warned = []
  const onWarning = ({ code, message }) => warned.push([code, message])
  process.on('warning', onWarning)
  try {
    const [first, ...others] = [{}, { name: 'other' }, { prefix: 'other' }].map((more) => new Shared(url, '7 per any 77s', more))
    // The same object is one limit, and a name or another text tells two apart.
    for (const limit of [first, first, ...others, new Shared(url, '8 per any 77s')]) rateLimit(limit)
    await sleep(1)
    assert.deepEqual(warned, [])
    const another = new Shared(url, '7 per any 77s')
    rateLimit(another)
    rateLimit(another)
    await sleep(1)
    assert.equal(warned.length, 1)
    assert.equal(warned[0][0], 'RATEGATE_SHARED_TWICE')
    assert.match(warned[0][1], /^the limit '7 per any 77s' .*give each a name/)
  } finally {
    process.off('warning', onWarning)
  }
})

const OTHERS = {
  fastify: async (limited) => {
    const app = Fastify()
    app.register(ofFastify.rateLimit(limited))
    app.get('/', async () => 'hello')
    await app.listen({ host: '127.0.0.1', port: 0 })
    return app.server
  },
  hono: (limited) => {
    const app = new Hono()
    app.use(ofHono.rateLimit(limited))
    app.get('/', (context) => context.text('hello'))
    return serve({ fetch: app.fetch, hostname: '127.0.0.1', port: 0 })
  },
  koa: (limited) => {
    const app = new Koa()
    app.use(ofKoa.rateLimit(limited))
    app.use((context) => { context.body = 'hello' })
    return app.listen(0, '127.0.0.1')
  }
}

for (const [name, start] of Object.entries(OTHERS)) {
  test(`${name}: a limit of all processes limits requests, and without its store is a 503`, options, async (context) => {
    const own = await Server.start()
    context.after(() => own.kill())
    const get = await serving(context, await start(shared('1/h', { url: own.url })))
    const passed = await get()
    assert.deepEqual([passed.text, ...reported(passed)], ['hello', 200, '"default";r=0', '"default";q=1;w=3600', null])
    const refused = await get()
    assert.ok(refused.status === 429 && isHour(refused))
    await own.kill()
    assert.equal((await get()).status, 503)
  })
}
