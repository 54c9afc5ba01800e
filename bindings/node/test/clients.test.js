// Clients that follow servers: the vectors of the layer for tower, and real ones on the loopback.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import { Full, Limiter, TooLong } from 'rategate'
import { pace } from 'rategate/fetch'
import { pace as interceptor } from 'rategate/undici'
import { Agent, request } from 'undici'

import { hintsOf, opensAfter, splitOutsideQuotes } from '../node_modules/rategate/lib/http/hints.cjs'
import { Hold, MAX_SERVERS, Pace } from '../node_modules/rategate/lib/http/pace.cjs'
import { goDuration, httpDate, rfc3339, seconds } from '../node_modules/rategate/lib/http/text.cjs'

const UNIX_NOW = 1_700_000_000n
const MS = 1_000_000n
const MAX_HOLD = 3_600_000n * MS

function allHints (status, fields) {
  const values = (name) => fields.filter(([key]) => key === name).map(([, value]) => value)
  return hintsOf(status, values, UNIX_NOW * 1000n * MS, MAX_HOLD)
}

/** Returns the hold in milliseconds, and each limit's remaining number and reset. */
function hints (status, fields) {
  const { hold, limits } = allHints(status, fields)
  return [Number(hold / MS), limits.map(({ remaining, reset }) => [Number(remaining), Number(reset / MS)])]
}

test('seconds are decimal and rounded up', () => {
  const S = 1000n * MS
  const table = [
    ['0', 0n], ['7', 7n * S], ['2.0', 2n * S], ['1.5', 1500n * MS], ['0.0000000001', 1n], ['0.00000000000000000001', 1n],
    ['99999999999999999999999.5', (2n ** 64n - 1n) * S + 500n * MS]
  ]
  for (const [text, expected] of table) assert.equal(seconds(text), expected, text)
  for (const text of ['+1', '-1', '1e9', '1.', '.5', '1.5.1', '0x10', '١', '7s', '']) assert.equal(seconds(text), undefined, text)
  const durations = [
    ['1s', 1000n], ['12ms', 12n], ['6m0s', 360_000n], ['2m52.8s', 172_800n], ['1h2m3.5s', 3_723_500n], ['33.023s', 33_023n], ['1.5h', 5_400_000n]
  ]
  for (const [text, expected] of durations) assert.equal(goDuration(text), expected * MS, text)
  assert.deepEqual(['7us', '7µs', '0.1ns'].map(goDuration), [7000n, 7000n, 1n])
  for (const text of ['', '1', 's', '1d', '1s2', '-1s', '1 s', '1..5s']) assert.equal(goDuration(text), undefined, text)
})

test('instants are those of RFC 3339 and of HTTP', () => {
  const at = (ms) => (1_755_780_059_000n + ms) * MS
  const table = [
    // Whole seconds count as their end.
    ['2025-08-21T12:40:59Z', at(1000n)],
    ['2025-08-21t12:40:59z', at(1000n)],
    ['2025-08-21T12:40:59.25Z', at(250n)],
    ['2025-08-21T07:40:59.5-05:00', at(500n)],
    ['2025-08-21T18:10:59.5+05:30', at(500n)]
  ]
  for (const [text, expected] of table) assert.equal(rfc3339(text), expected, text)
  for (const text of ['2025-02-29T12:40:59Z', '2025-13-01T12:40:59Z', '2025-00-01T12:40:59Z', '2025-08-21 12:40:59Z', '2025-08-21T12:40Z', '2025-08-21T12:40:59', '2025-08-21T12:40:59.Z', '2025-08-21T12:40:59Zz', '2025-08-21T12:40:59+0530', '2025-8-21T12:40:59Z', '10000-08-21T12:40:59Z', '']) {
    assert.equal(rfc3339(text), undefined, text)
  }
  for (const text of ['Sun, 06 Nov 1994 08:49:37 GMT', 'Sunday, 06-Nov-94 08:49:37 GMT', 'Sun Nov  6 08:49:37 1994']) {
    assert.equal(httpDate(text), 784_111_777_000n * MS, text)
  }
  for (const text of ['Tue, 31 Feb 2023 22:13:50 GMT', 'Tue, 14 Nov 2023 25:13:50 GMT', '7', 'soon', '2023-11-14']) assert.equal(httpDate(text), undefined, text)
})

test('refusals ask for a hold', () => {
  const DATE = 'Tue, 14 Nov 2023 22:13:50 GMT' // 30 s from now
  const table = [
    [429, [['retry-after', '7']], 7],
    [503, [['retry-after', '7']], 7],
    [429, [['retry-after', '2.5']], 2.5],
    [429, [['retry-after', DATE]], 30],
    // The server's own clock takes precedence over the client's.
    [429, [['retry-after', DATE], ['date', 'Tue, 14 Nov 2023 22:13:48 GMT']], 2],
    [429, [['retry-after', 'Tue, 14 Nov 2000 22:13:50 GMT']], 1],
    [429, [['retry-after', '0']], 1],
    [429, [['retry-after', 'soon']], 1],
    [429, [], 1],
    [503, [], 0],
    [503, [['retry-after', '0']], 0],
    // Absurd values cannot hold a client for longer than its own maximum.
    [429, [['retry-after', '99999999999999999999']], 3600],
    [429, [['retry-after', 'Fri, 31 Dec 9999 23:59:59 GMT']], 3600],
    // Retry-After takes precedence over a reset.
    [429, [['ratelimit', '"p";r=0;t=60'], ['retry-after', '5']], 5],
    [429, [['ratelimit', '"p";r=0;t=60']], 60],
    [429, [['ratelimit', '"p";r=9;t=60']], 1],
    [429, [['x-ratelimit-remaining', '0'], ['x-ratelimit-reset', '1700000042']], 42],
    [403, [['retry-after', '7']], 7],
    [403, [['x-ratelimit-remaining', '0'], ['x-ratelimit-reset', '1700000042']], 42],
    [403, [['x-ratelimit-remaining', '9'], ['x-ratelimit-reset', '1700000042']], 0],
    [403, [], 0],
    [429, [['x-ratelimit-resource', 'core']], 60],
    [429, [['x-ratelimit-resource', 'core'], ['retry-after', '7']], 7],
    // A bucket has permits again before it is full, but then the request was refused.
    [429, [['x-shopify-shop-api-call-limit', '40/40']], 20]
  ]
  for (const [status, fields, expected] of table) {
    assert.equal(Number(allHints(status, fields).hold) / 1e9, expected, `${status} ${JSON.stringify(fields)}`)
  }
  assert.deepEqual(hints(429, [['ratelimit', '"p";r=0;t=60'], ['retry-after', '5']])[1], [[0, 5000]])
})

test('responses that passed ask for a hold only if nothing remains', () => {
  const table = [
    [[], 0, []],
    [[['retry-after', '7']], 0, []],
    [[['ratelimit', '"default";r=50;t=30']], 0, [[50, 30_000]]],
    [[['ratelimit', '"default";r=0;t=30']], 30_000, [[0, 30_000]]],
    [[['ratelimit', '"default";r=0']], 0, []],
    [[['ratelimit', '"default";r=50;t=0']], 0, []],
    [[['ratelimit', '"burst";r=10;t=1, "daily";r=120;t=60']], 0, [[10, 1000], [120, 60_000]]],
    [[['ratelimit', '"a";r=0;t=5'], ['ratelimit', '"b";r=0;t=9']], 9000, [[0, 5000], [0, 9000]]],
    [[['ratelimit-remaining', '3'], ['ratelimit-reset', '6']], 0, [[3, 6000]]],
    [[['x-ratelimit-remaining', '3'], ['x-ratelimit-reset', '1700000006']], 0, [[3, 6000]]],
    [[['x-ratelimit-remaining', '3']], 0, []],
    [[['ratelimit', '"daily";r=999;t=86400']], 0, []],
    [[['ratelimit', '"daily";r=0;t=86400']], 3_600_000, [[0, 3_600_000]]],
    // Of a bucket one is back before the whole.
    [[['x-shopify-shop-api-call-limit', '40/40']], 500, [[0, 20_000]]],
    // Tokens depend on the next request; a unit that is not known holds every request.
    [[['ratelimit-policy', '"tpm";q=9;w=60;qu="tokens", "x";q=9;qu="smiles"'], ['ratelimit', '"tpm";r=0;t=30, "x";r=0;t=2']], 2000, [[0, 30_000], [0, 2000]]]
  ]
  for (const [fields, hold, limits] of table) assert.deepEqual(hints(200, fields), [hold, limits], JSON.stringify(fields))
  const { limits } = allHints(200, [['ratelimit-policy', '"p";q=5;w=31536000'], ['ratelimit', '"p";r=1;t=9']])
  assert.equal(limits[0].window, MAX_HOLD)
  for (const [age, count] of [['0', 1], ['7', 0], ['old', 1]]) {
    assert.equal(allHints(200, [['ratelimit', '"a";r=1;t=1'], ['age', age]]).limits.length, count)
  }
})

test('responses of vendors are read', () => {
  const table = [
    ['x-ratelimit-limit: 5000\nx-ratelimit-remaining: 4987\nx-ratelimit-used: 13\nx-ratelimit-reset: 1700001800\nx-ratelimit-resource: core',
      ['core requests 5000 4987 1800000 false']],
    ['x-ratelimit-limit-requests: 60\nx-ratelimit-limit-tokens: 150000\nx-ratelimit-remaining-requests: 59\nx-ratelimit-remaining-tokens: 149984\nx-ratelimit-reset-requests: 1s\nx-ratelimit-reset-tokens: 6m0s',
      ['x-ratelimit-remaining-requests requests 60 59 1000 true', 'x-ratelimit-remaining-tokens tokens 150000 149984 360000 true']],
    ['date: Tue, 14 Nov 2023 22:13:20 GMT\nanthropic-ratelimit-requests-limit: 1000\nanthropic-ratelimit-requests-remaining: 999\nanthropic-ratelimit-requests-reset: 2023-11-14T22:13:20Z\nanthropic-ratelimit-output-tokens-limit: 16000\nanthropic-ratelimit-output-tokens-remaining: 16000\nanthropic-ratelimit-output-tokens-reset: 2023-11-14T22:14:05Z',
      ['anthropic-ratelimit-requests-remaining requests 1000 999 1000 true', 'anthropic-ratelimit-output-tokens-remaining output-tokens 16000 16000 46000 true']],
    ['x-shopify-shop-api-call-limit: 32/40', ['x-shopify-shop-api-call-limit requests 40 8 16000 true']],
    ['ratelimit-policy: "permin";q=50;w=60, "tpm";q=90000;w=60;qu="tokens"\nratelimit: "permin";r=12;t=30\nratelimit: "tpm";r=800;t=30',
      ['permin requests 50 12 30000 false', 'tpm tokens 90000 800 30000 false']],
    ['x-ratelimit-limit: 100, 100;w=60\nx-ratelimit-remaining: 9\nx-ratelimit-reset: 5', ['x-ratelimit-remaining requests 100 9 5000 false']]
  ]
  for (const [response, expected] of table) {
    const { hold, limits } = allHints(200, response.split('\n').map((line) => line.split(': ')))
    assert.equal(hold, 0n)
    assert.deepEqual(limits.map(({ name, unit, quota, remaining, reset, isGradual }) => `${name} ${unit} ${quota} ${remaining} ${reset / MS} ${isGradual}`), expected)
  }
  const limit = { quota: 1000n, remaining: 400n, reset: 60_000n * MS, isGradual: true }
  assert.deepEqual([400n, 401n, 700n, 1000n, 5000n].map((amount) => opensAfter(limit, amount) / MS), [0n, 100n, 30_000n, 60_000n, 60_000n])
  assert.equal(opensAfter({ ...limit, isGradual: false }, 401n), 60_000n * MS)
})

test('structured fields are read whole or not at all', () => {
  const MAX = 999_999_999_999_999
  const table = [
    ['"default";r=50;t=30', [[50, 30]]],
    ['"default" ; r=50 ; t=30 ', [[50, 30]]],
    ['default;r=50;t=30', [[50, 30]]],
    ['"a";r=1;t=2,"b";r=3;t=4', [[1, 2], [3, 4]]],
    ['"a";t=2;pk=:cHsdsRa894==:;r=1;x', [[1, 2]]],
    ['"a;r=9;t=9,b";r=1;t=2', [[1, 2]]],
    ['"a\\";r=9;t=9\\\\";r=1;t=2', [[1, 2]]],
    ['"default"', []],
    ['limit=100, remaining=50, reset=5', [[50, 5]]],
    [`"a";r=${MAX};t=1`, [[MAX, 1]]]
  ]
  for (const [line, expected] of table) assert.deepEqual(hints(200, [['ratelimit', line]])[1], expected.map(([left, s]) => [left, s * 1000]), line)
  for (const line of ['"a";r=1000000000000000;t=2', '"a";r=-1;t=2', '"a";r=1.5;t=2', '"a";r=;t=2', '"a";r=1;t=2,"b";r=x;t=4', '"a";r=1;t=2,"b;r=3;t=4', '"a"b;r=1;t=2', '']) {
    assert.deepEqual(hints(200, [['ratelimit', line]])[1], [], line)
  }
  for (const policy of ['"a";q=x;w=9', '"a";q=5;w=0', '"a;q=5', '100;w=60']) {
    const { limits } = allHints(200, [['ratelimit-policy', policy], ['ratelimit', '"a";r=1;t=2']])
    assert.deepEqual([limits[0].quota, limits[0].unit], [undefined, 'requests'], policy)
  }
  assert.deepEqual(splitOutsideQuotes('a, "b,c" ,d', ','), ['a', '"b,c"', 'd'])
  assert.deepEqual(splitOutsideQuotes('"a\\",b",c', ','), ['"a\\",b"', 'c'])
})

test('any text gives hints, in a time that its length bounds', () => {
  const names = ['ratelimit', 'ratelimit-policy', 'ratelimit-remaining', 'ratelimit-reset', 'x-ratelimit-limit', 'x-ratelimit-remaining', 'x-ratelimit-reset', 'x-ratelimit-reset-tokens', 'anthropic-ratelimit-requests-reset', 'x-shopify-shop-api-call-limit', 'retry-after', 'date', 'age']
  const pieces = ['"', '\\', ';', ',', '=', 'r=', '"a"', 'b', ';r=1', ';t=1', ';t=', ',"c"', 'pk', ':', '0', '1', '999999999999999', '.', '-', 'limit', 'GMT', 'w=60', '18446744073709551615', 'remaining=', 'reset=', 'é', '/', 'h', 'ms', '2025-08-21', 'T12:40:59', '+05:30', ' ', 'Tue, 31 Feb 9999 25:61:61 GMT']
  let seed = 1
  const random = (below) => {
    seed = (seed * 1103515245 + 12345) % 2147483648
    return Math.floor(seed / 2147483648 * below)
  }
  let understood = 0
  for (let turn = 0; turn < 2000; turn++) {
    const fields = names.map((name) => [name, Array.from({ length: random(6) }, () => pieces[random(pieces.length)]).join('')])
    const { hold, limits } = allHints([200, 429][turn % 2], fields)
    assert.ok(hold >= 0n && hold <= MAX_HOLD)
    if (limits.length > 0) understood++
  }
  assert.ok(understood > 5, `${understood}`)
  const long = [['retry-after', '7'.repeat(9000)], ['ratelimit', '"a";r=1;t=1,'.repeat(600)], ['x-ratelimit-reset', '1.'.repeat(4000)], ['date', 'x'.repeat(8000)]]
  assert.equal(allHints(429, long).hold, 1000n * MS)
})

test('holds only grow, and end later by one random part', () => {
  const hold = new Hold()
  let draws = 0
  const random = () => [0.5, 1][draws++]
  assert.equal(hold.extend(0, 10_000, undefined, random), true)
  assert.equal(hold.until, 11_000)
  // An older response does not shorten it.
  assert.equal(hold.extend(1000, 5000, undefined, random), false)
  assert.equal(hold.until, 11_000)
  hold.extend(2000, 20_000, undefined, random)
  assert.deepEqual([hold.until, draws], [24_000, 1])
  hold.extend(24_000, 600_000, undefined, random)
  assert.deepEqual([hold.until, draws], [654_000, 2])
  const exact = new Hold()
  exact.extend(0, 10_000, 0, () => 1)
  assert.equal(exact.until, 10_000)
})

/** A server that answers by a list, and keeps the instants of its requests. */
async function serve (context, ...answers) {
  const starts = []
  const server = createServer((incoming, response) => {
    starts.push(performance.now())
    const [status, headers] = answers.shift() ?? [200, {}]
    response.writeHead(status, headers)
    response.end('text')
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  context.after(() => server.close())
  context.after(() => server.closeAllConnections())
  return { url: `http://127.0.0.1:${server.address().port}/`, starts, answers }
}

const CLIENTS = {
  fetch: (options) => {
    const paced = pace(fetch, options)
    return async (url, signal) => {
      const response = await paced(url, { signal })
      return [response.status, await response.text()]
    }
  },
  undici: (options) => {
    const dispatcher = new Agent().compose(interceptor(options))
    return async (url, signal) => {
      const { statusCode, body } = await request(url, { dispatcher, signal })
      return [statusCode, await body.text()]
    }
  }
}

for (const [name, make] of Object.entries(CLIENTS)) {
  test(`${name} sends nothing before the server's time`, async (context) => {
    const { url, starts } = await serve(context, [429, { 'Retry-After': '0.2' }], [200, { RateLimit: '"p";r=0;t=1' }], [503, { 'Retry-After': '0.1' }])
    const get = make({ onHold: (ms, server) => holds.push([ms, server]) })
    const holds = []
    assert.deepEqual(await get(url), [429, 'text'])
    assert.deepEqual([(await get(url))[0], (await get(url))[0], (await get(url))[0]], [200, 503, 200])
    for (const [at, wait] of [[1, 200], [2, 1000], [3, 100]]) {
      const gap = starts[at] - starts[at - 1]
      assert.ok(gap >= wait && gap < wait * 1.2 + 500, `${at}: ${gap}`)
    }
    assert.deepEqual(holds, [200, 1000, 100].map((ms) => [ms, new URL(url).origin]))
  })

  test(`a request of ${name} leaves the line with its signal`, async (context) => {
    const { url, starts } = await serve(context, [429, { 'Retry-After': '0.3' }])
    const limiter = new Limiter({ policy: 'concurrency', permits: 1 })
    const get = make({ jitter: 0, limiter })
    await get(url)
    const control = new AbortController()
    const begin = performance.now()
    const left = get(url, control.signal)
    const stays = get(url)
    setTimeout(() => control.abort(new Error('own reason')), 30)
    await assert.rejects(left, /own reason/)
    assert.ok(performance.now() - begin < 250)
    await stays
    assert.equal(starts.length, 2)
    // What was in flight has ended, also of the one that left.
    assert.equal(limiter.remaining, 1)
    await assert.rejects(get(url, AbortSignal.abort(new Error('at once'))), /at once/)
  })

  test(`${name} takes permits in order, and refuses waits that are too long`, async (context) => {
    const { url, answers } = await serve(context)
    const get = make({ limiter: new Limiter('50/s burst 1'), maxWait: 500, maxWaiting: 1, jitter: 0 })
    const begin = performance.now()
    await Promise.all([1, 2, 3, 4].map(() => get(url)))
    assert.ok(performance.now() - begin >= 60)
    answers.push([429, { 'Retry-After': '0.4' }], [429, { 'Retry-After': '9' }])
    await get(url)
    const waits = get(url)
    await assert.rejects(get(url), Full)
    assert.equal((await waits)[0], 429)
    await assert.rejects(get(url), (error) => error instanceof TooLong && error.retryAfter > 8000 && error.retryAfter <= 8500)
  })

  test(`${name} keeps the holds of servers apart`, async (context) => {
    const held = await serve(context, [429, { 'Retry-After': '60' }])
    const other = await serve(context)
    const get = make()
    await get(held.url)
    assert.equal((await get(other.url))[0], 200)
  })

  test(`${name} passes errors on, and ends what was in flight`, async (context) => {
    const limiter = new Limiter({ policy: 'concurrency', permits: 1 })
    const get = make({ limiter })
    await assert.rejects(get('http://127.0.0.1:1/'))
    await assert.rejects(get('no url'), TypeError)
    await sleep(1)
    assert.equal(limiter.remaining, 1)
  })
}

for (const [name, make] of Object.entries(CLIENTS)) {
  test(`${name} ends an operation once, also if its body breaks off`, async (context) => {
    const server = createServer((incoming, response) => {
      response.writeHead(200, { 'Content-Length': 10 })
      response.write('half', () => response.destroy())
    }).listen(0, '127.0.0.1')
    await once(server, 'listening')
    context.after(() => server.close())
    const limiter = new Limiter({ policy: 'concurrency', permits: 2 })
    assert.ok(limiter.tryAcquire())
    await assert.rejects(make({ limiter })(`http://127.0.0.1:${server.address().port}/`))
    assert.equal(limiter.remaining, 1)
  })
}

test('a wait for a long hold is one timer, and a body is sent after it', async (context) => {
  const received = []
  const server = createServer(async (incoming, response) => {
    let body = ''
    for await (const chunk of incoming) body += chunk
    received.push(body)
    response.writeHead(received.length === 1 ? 429 : 200, { 'Retry-After': '0.1' })
    response.end()
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  context.after(() => server.close())
  const url = `http://127.0.0.1:${server.address().port}/`
  const dispatcher = new Agent().compose(interceptor({ jitter: 0 }))
  for (let turn = 0; turn < 2; turn++) await (await request(url, { dispatcher, method: 'POST', body: `body ${turn}` })).body.dump()
  assert.deepEqual(received, ['body 0', 'body 1'])
  await dispatcher.close()
})

test('the holds of servers are bounded in number', () => {
  const pace = new Pace()
  const refused = (name) => ({ 'retry-after': ['60'] })[name] ?? []
  for (let at = 0; at < MAX_SERVERS; at++) pace.follow(`http://${at}`, 429, refused)
  assert.equal(pace.mayStart('http://another'), true)
  // All others share one, which is held with any of them.
  pace.follow('http://another', 429, refused)
  assert.deepEqual(['http://more', 'http://0'].map((server) => pace.mayStart(server)), [false, false])
  const idle = new Pace()
  for (let at = 0; at < 3 * MAX_SERVERS; at++) assert.equal(idle.mayStart(`http://${at}`), true)
})

test('a request that leaves during a second hold brings its permit back', async () => {
  const limiter = new Limiter({ policy: 'concurrency', permits: 2 })
  const pace = new Pace({ limiter, jitter: 0 })
  const [end, endOther] = [await pace.start('a'), await pace.start('a')]
  const control = new AbortController()
  const second = pace.start('a', control.signal)
  pace.follow('a', 429, (name) => name === 'retry-after' ? ['60'] : [])
  end()
  while (limiter.waiting > 0) await sleep(1)
  await sleep(5)
  assert.equal(limiter.remaining, 0)
  control.abort('own reason')
  await assert.rejects(second, (reason) => reason === 'own reason')
  // The other one is still in flight.
  assert.equal(limiter.remaining, 1)
  endOther()
  assert.equal(limiter.remaining, 2)
})

test('options of clients that make no sense are refused with a sentence', () => {
  for (const make of [(options) => pace(fetch, options), interceptor]) {
    for (const options of [5, { limiter: '5/s' }, { onHold: 5 }, { jiter: 0 }, { maxWait: {} }]) assert.throws(() => make(options), TypeError)
    for (const options of [{ maxHold: -1 }, { jitter: 'long' }, { maxWaiting: 0.5 }]) assert.throws(() => make(options), RangeError)
  }
  assert.throws(() => pace(5), /^TypeError: fetch is 5/)
  assert.throws(() => interceptor()(() => true)({}, {}), /needs undici 7/)
})
