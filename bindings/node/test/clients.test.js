// Clients that follow servers, by the pacing of the layer for tower: real ones on the loopback.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import { Full, Limiter, ManualClock, TooLong } from 'rategate'
import { pace } from 'rategate/fetch'
import { pace as interceptor } from 'rategate/undici'
import { Agent, request } from 'undici'

import native from '../node_modules/rategate/lib/native.cjs'
import { MAX_SERVERS, Pace } from '../node_modules/rategate/lib/http/pace.cjs'

test('the compiled pacing reads responses, and says when requests may start', () => {
  const pacing = new native.Pacing(true, 0n, undefined, 2)
  const table = [
    [429, ['Retry-After', '7'], 7000],
    [200, ['Retry-After', '7'], null],
    [200, ['RateLimit', '"a";r=0;t=5', 'ratelimit', '"b";r=0;t=9'], 9000],
    [200, ['x-ratelimit-remaining', '0', 'x-ratelimit-reset', '1700000042', 'date', 'Tue, 14 Nov 2023 22:13:20 GMT'], 42_000],
    [429, ['Retry-After', '1e9', 'caf\xe9', '\0', 'odd'], 1000],
    [429, ['Retry-After', '99999999999999999999'], 3_600_000]
  ]
  for (const [status, fields, expected] of table) {
    const sent = new native.Pacing(true, 0n, undefined, 2).join()
    assert.deepEqual([sent.start(0), sent.send(0)], [0, true])
    assert.equal(sent.follow(0, status, fields, true), expected, fields.join())
  }
  const first = pacing.join()
  assert.deepEqual([first.start(1000.25), first.send(1000.25)], [0, true])
  assert.equal(first.follow(2000.25, 503, ['retry-after', '1.5'], true), 1500)
  assert.equal(first.follow(2000.25, 503, ['retry-after', '9'], true), null)
  const [second, third] = [pacing.join(), pacing.join()]
  assert.equal(pacing.join(), null)
  assert.equal(third.start(3000), 500.25)
  assert.deepEqual([second.leave(), second.leave(), second.start(3000), second.send(3000)], [true, false, 0, false])
  assert.deepEqual([third.send(3500.25), third.start(3500.249999), third.start(3500.25), third.send(3500.25)], [false, 1e-6, 0, true])
  for (const now of [-1, NaN, Infinity]) assert.throws(() => third.start(now), /rategate|the instant/)
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

  test(`an adaptive limiter of ${name} follows how requests end`, async (context) => {
    const after = async (...answers) => {
      const [clock, holds] = [new ManualClock(), []]
      const { url } = await serve(context, ...answers.filter((answer) => answer !== LOST))
      const limiter = new Limiter({ policy: 'adaptive-rate', ceiling: '16/s', floor: '1/s' }, { clock })
      const get = make({ limiter, jitter: 0, onHold: (ms) => holds.push(ms) })
      for (const answer of answers) {
        if (answer === LOST) await assert.rejects(get('http://127.0.0.1:1/'))
        else assert.equal((await get(url))[0], answer[0])
        clock.advance(2000)
      }
      assert.ok(limiter.tryAcquire())
      return [limiter.peek(), ...holds]
    }
    const LOST = Symbol('no response')
    const [SERVED, REFUSED, SLOW, FAST] = [[200, {}], [429, {}], 1000, 62.5]
    for (const answer of [REFUSED, [503, {}], [529, {}]]) assert.deepEqual(await after(answer), [SLOW], answer[0])
    assert.deepEqual(await after([403, { 'Retry-After': '0.01' }]), [SLOW, 10])
    for (const answer of [SERVED, [403, {}], [404, {}], [500, {}], LOST]) assert.deepEqual(await after(answer), [FAST])
    // What is served lets the rate rise again, and what is lost does not.
    assert.deepEqual(await after(REFUSED, LOST, LOST, LOST), [SLOW])
    assert.ok((await after(REFUSED, SERVED, SERVED, SERVED))[0] < SLOW)
    assert.deepEqual(await after([429, { 'Retry-After': '9' }]), [SLOW, 9000])
  })

  test(`${name} guesses a hold, where no limiter cuts its rate`, async (context) => {
    for (const limiter of [undefined, new Limiter('9/s')]) {
      const holds = []
      const { url } = await serve(context, [429, {}])
      await make({ limiter, onHold: (ms) => holds.push(ms) })(url)
      assert.deepEqual(holds, [1000])
    }
  })

  test(`${name} goes on where its limiter is closed during a request`, async (context) => {
    const limiter = new Limiter({ policy: 'adaptive', ceiling: 3 })
    const server = createServer((incoming, response) => {
      limiter.close()
      response.end('text')
    }).listen(0, '127.0.0.1')
    await once(server, 'listening')
    context.after(() => server.close())
    context.after(() => server.closeAllConnections())
    assert.deepEqual(await make({ limiter })(`http://127.0.0.1:${server.address().port}/`), [200, 'text'])
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

/** Sends a request, whose response has this status and these fields. */
async function follow (pace, server, status, ...fields) {
  const sent = await pace.start(server)
  sent.follow(status, fields)
  sent.end()
}

/** Returns `true` if a request may start at once, which then ends without a response. */
function mayStart (pace, server) {
  const sent = pace.tryStart(server)
  sent?.end()
  return sent !== undefined
}

test('what remains is spread over the time until the reset, unless that is not wanted', async (context) => {
  for (const [spread, shortest, longest] of [[undefined, 1200, 9000], [false, 0, 1000]]) {
    const fields = { RateLimit: '"p";r=4;t=3' }
    const { url, starts } = await serve(context, [200, fields])
    const get = CLIENTS.fetch({ jitter: 0, ...(spread === undefined ? {} : { spread }) })
    await get(url)
    await Promise.all([get(url), get(url), get(url)])
    const took = starts[3] - starts[0]
    assert.ok(took >= shortest && took < longest, `${spread}: ${took}`)
  }
})

test('no more is sent than a server says that remains, also at once', async () => {
  const pace = new Pace({ jitter: 0, spread: false })
  await follow(pace, 'a', 200, 'ratelimit', '"p";r=2;t=60')
  const sent = [pace.tryStart('a'), pace.tryStart('a')]
  assert.ok(sent.every((each) => each !== undefined))
  assert.equal(mayStart(pace, 'a'), false)
  assert.equal(mayStart(pace, 'b'), true)
  // The server may have counted those that have no response.
  for (const each of sent) each.end()
  assert.equal(mayStart(pace, 'a'), false)
})

test('the requests behind a hold start in their order', async () => {
  const pace = new Pace({ jitter: 0 })
  await follow(pace, 'a', 429, 'retry-after', '0.5')
  const begin = performance.now()
  const order = []
  const start = async (number) => {
    const sent = await pace.start('a')
    order.push(number)
    sent.end()
  }
  const all = []
  for (let number = 0; number < 10; number++) {
    all.push(start(number))
    await sleep(1)
  }
  // The loop is late, so that this one arrives when the others are due.
  while (performance.now() - begin < 510);
  assert.equal(mayStart(pace, 'a'), false)
  await Promise.all([...all, start(10)])
  assert.deepEqual(order, [...Array(11).keys()])
})

test('those that a hold sends back are ahead of the others', async () => {
  const clock = new ManualClock()
  const limiter = new Limiter('20/s burst 2', { clock })
  const pace = new Pace({ limiter, jitter: 0 })
  const first = await pace.start('a')
  await pace.start('a')
  const order = []
  const start = async (number) => {
    const sent = await pace.start('a')
    order.push(number)
    sent.end()
  }
  const back = [start(0), start(1)]
  // They wait for the limiter while the hold begins.
  while (limiter.waiting < 2) await sleep(1)
  first.follow(429, ['retry-after', '0.2'])
  const ticks = setInterval(() => clock.advance(50), 1)
  await Promise.all([...back, start(2), start(3)]).finally(() => clearInterval(ticks))
  assert.deepEqual(order, [0, 1, 2, 3])
})

test('a request that leaves makes way for another', async () => {
  const pace = new Pace({ jitter: 0, maxWaiting: 1 })
  await follow(pace, 'a', 429, 'retry-after', '60')
  for (let turn = 0; turn < 3; turn++) {
    const control = new AbortController()
    const waits = pace.start('a', control.signal)
    await assert.rejects(pace.start('a'), Full)
    control.abort('own reason')
    await assert.rejects(waits, (reason) => reason === 'own reason')
  }
})

test('a hold that grows refuses those that it makes wait too long', async () => {
  const pace = new Pace({ jitter: 0, maxWait: '5s' })
  const [first, second] = [pace.tryStart('a'), pace.tryStart('a')]
  first.follow(429, ['retry-after', '1'])
  const waits = pace.start('a')
  await sleep(1)
  second.follow(429, ['retry-after', '60'])
  await assert.rejects(waits, (error) => error instanceof TooLong && error.retryAfter > 50_000 && error.retryAfter <= 55_100)
})

test('the servers that are paced apart are bounded in number', async () => {
  const pace = new Pace()
  for (let at = 0; at < MAX_SERVERS; at++) await follow(pace, `http://${at}`, 429, 'retry-after', '60')
  assert.equal(mayStart(pace, 'http://another'), true)
  // All others share one pace.
  await follow(pace, 'http://another', 429, 'retry-after', '60')
  assert.deepEqual(['http://more', 'http://0'].map((server) => mayStart(pace, server)), [false, false])
  const idle = new Pace({ spread: false })
  await follow(idle, 'http://held', 429, 'retry-after', '60')
  await follow(idle, 'http://known', 200, 'ratelimit', '"p";r=20;t=60')
  for (let at = 0; at < 3 * MAX_SERVERS; at++) {
    assert.equal(mayStart(idle, `http://${at}`), true)
    // The one that is used stays, with what is known of it.
    if (at % 100 === 0) assert.equal(mayStart(idle, 'http://known'), at < 2000)
  }
  assert.equal(mayStart(idle, 'http://held'), false)
})

test('a request that leaves during a second hold has no permit', async () => {
  const limiter = new Limiter({ policy: 'concurrency', permits: 2 })
  const pace = new Pace({ limiter, jitter: 0 })
  const [sent, other] = [await pace.start('a'), await pace.start('a')]
  const control = new AbortController()
  const second = pace.start('a', control.signal)
  sent.follow(429, ['retry-after', '60'])
  sent.end()
  while (limiter.waiting > 0) await sleep(1)
  await sleep(5)
  // It waits for the server without one.
  assert.equal(limiter.remaining, 1)
  control.abort('own reason')
  await assert.rejects(second, (reason) => reason === 'own reason')
  assert.equal(limiter.remaining, 1)
  other.end()
  other.end()
  assert.equal(limiter.remaining, 2)
})

test('options of clients that make no sense are refused with a sentence', () => {
  for (const make of [(options) => pace(fetch, options), interceptor]) {
    for (const options of [5, { limiter: '5/s' }, { onHold: 5 }, { spread: 1 }, { jiter: 0 }, { maxWait: {} }]) assert.throws(() => make(options), TypeError)
    for (const options of [{ maxHold: -1 }, { jitter: 'long' }, { maxWaiting: 0.5 }]) assert.throws(() => make(options), RangeError)
  }
  assert.throws(() => pace(5), /^TypeError: fetch is 5/)
  assert.throws(() => interceptor()(() => true)({}, {}), /needs undici 7/)
})
