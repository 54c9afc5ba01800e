// Waits: their instants, their order, and how they end.
import assert from 'node:assert/strict'
import { getEventListeners } from 'node:events'
import { test } from 'node:test'
import { setImmediate as tick, setTimeout as sleep } from 'node:timers/promises'

import { Closed, Keyed, Limiter, ManualClock, TooLong } from 'rategate'

/** Keeps the loop busy. */
function block (milliseconds) {
  const until = performance.now() + milliseconds
  while (performance.now() < until);
}

/** Returns a function that starts a wait, and the list of those whose callers have gone on. */
function inOrder (limiter) {
  const ended = []
  let next = 0
  const start = (options) => {
    const id = next++
    return limiter.acquire(1, options).then(() => ended.push(id), (error) => error)
  }
  return { ended, start }
}

test('no wait ends early, by the clock of Node or of the limiter', async () => {
  const limiter = new Limiter('500/s burst 1')
  const begin = process.hrtime.bigint()
  const waits = Array.from({ length: 150 }, async (_, at) => {
    const grant = await limiter.acquire()
    const [now, own] = [process.hrtime.bigint() - begin, limiter.nowNs]
    assert.ok(own >= grant.releasedAtNs && grant.releasedAtNs >= grant.promisedAtNs)
    // The two clocks may differ by some millionths.
    assert.ok(now + now / 10_000n >= BigInt(at) * 2_000_000n, `${at} after ${now} ns`)
    return grant
  })
  const grants = await Promise.all(waits)
  for (let at = 1; at < grants.length; at++) {
    assert.ok(grants[at].releasedAtNs - grants[at - 1].releasedAtNs >= 2_000_000n)
  }
  assert.equal(limiter.waiting, 0)
})

test('no window of a log holds more than its permits', async () => {
  const limiter = new Limiter('5 per any 20ms')
  const grants = await Promise.all(Array.from({ length: 60 }, () => limiter.acquire()))
  const starts = grants.map((grant) => grant.releasedAtNs)
  for (let at = 5; at < starts.length; at++) assert.ok(starts[at] - starts[at - 5] >= 20_000_000n)
})

test('callers go on in the order of their calls after the loop was busy', async () => {
  for (const limit of ['1000/s burst 1', '1000/s burst 20', '20 per any 20ms']) {
    const limiter = new Limiter(limit)
    while (limiter.tryAcquire());
    const { ended, start } = inOrder(limiter)
    const waits = Array.from({ length: 5 }, () => start())
    block(40)
    // Permits are free by now: these must not overtake those that were granted them meanwhile.
    waits.push(start(), start())
    await Promise.all(waits)
    assert.deepEqual(ended, [0, 1, 2, 3, 4, 5, 6], limit)
  }
})

test('permits count from when their callers go on, however they call', async () => {
  const calls = [
    (limiter, run) => limiter.acquire().then(run),
    async (limiter, run) => {
      const own = async () => await limiter.acquire()
      await own()
      run()
    },
    (limiter, run) => limiter.schedule(run),
    (limiter, run) => limiter.wrap(run)()
  ]
  for (const call of calls) {
    for (const [limit, permits, period] of [['5 per any second', 5, 1000], ['100/s burst 1', 1, 10]]) {
      const clock = new ManualClock()
      const limiter = new Limiter(limit, { clock })
      const starts = []
      const run = () => {
        // The loop is busy at first, and the next callers go on later.
        if (starts.push(clock.now) <= 20) clock.advance(3)
      }
      const waits = Array.from({ length: 20 }, () => call(limiter, run))
      waits.push(...Array.from({ length: 20 }, () => limiter.acquire().then(run)))
      // Nor do permits that were free at the call count from there.
      clock.advance(3)
      while (starts.length < 40) {
        await clock.settle()
        clock.step()
      }
      await Promise.all(waits)
      const isShort = (start, at) => start - starts[at - permits] < period
      assert.equal(starts.findIndex(isShort), -1, `${call}, ${limit}: ${starts}`)
    }
  }
})

test('a try takes nothing that is held for a caller that has not gone on', async () => {
  const limiter = new Limiter('2/h')
  const waits = [limiter.acquire(), limiter.acquire()]
  assert.equal(limiter.tryAcquire(), false)
  assert.equal(limiter.waiting, 2)
  await Promise.all(waits)
  assert.deepEqual([limiter.waiting, limiter.remaining], [0, 0])
})

test('a minute of waits passes at once on a clock that is moved', async () => {
  const clock = new ManualClock()
  const limiter = new Limiter('1/s', { clock })
  const { ended, start } = inOrder(limiter)
  for (let at = 0; at < 60; at++) start()
  let before = -1
  do {
    await clock.settle()
    // One at each second, and none between them.
    assert.equal(ended.length, Math.min(Math.floor(clock.now / 1000) + 1, 60))
    assert.ok(clock.now > before)
    before = clock.now
  } while (clock.step() !== null)
  assert.deepEqual(ended, Array.from({ length: 60 }, (_, at) => at))
})

test('an abort leaves the line, and those behind move up', async () => {
  const clock = new ManualClock()
  const limiter = new Limiter('1/s', { clock })
  assert.ok(limiter.tryAcquire())
  const { ended, start } = inOrder(limiter)
  const abort = new AbortController()
  const reason = new Error('own reason')
  const waits = [start({ signal: abort.signal }), start({ signal: abort.signal }), start()]
  assert.equal(limiter.waiting, 3)
  abort.abort(reason)
  assert.deepEqual(await Promise.all(waits.slice(0, 2)), [reason, reason])
  assert.equal(limiter.waiting, 1)
  clock.advance(1000)
  await clock.settle()
  assert.deepEqual(ended, [2])
  // One that is aborted before takes nothing.
  clock.advance(1000)
  await assert.rejects(limiter.acquire(1, { signal: abort.signal }), reason)
  assert.equal(limiter.remaining, 1)
})

test('an abort between the grant and its delivery gives the permit to the next', async () => {
  const clock = new ManualClock()
  const limiter = new Limiter('1/s', { clock })
  assert.ok(limiter.tryAcquire())
  const { ended, start } = inOrder(limiter)
  const abort = new AbortController()
  const waits = [start({ signal: abort.signal }), start()]
  clock.advance(1000)
  abort.abort()
  await clock.settle()
  assert.equal((await waits[0]).name, 'AbortError')
  assert.deepEqual(ended, [1])
})

test('a storm of aborts leaves no waiter and no listener', async () => {
  const limiter = new Limiter('1/h')
  assert.ok(limiter.tryAcquire())
  const aborts = Array.from({ length: 2000 }, () => new AbortController())
  const waits = aborts.map(({ signal }) => limiter.acquire(1, { signal }).catch((error) => error.name))
  assert.equal(limiter.waiting, 2000)
  for (const abort of aborts) abort.abort()
  assert.deepEqual(new Set(await Promise.all(waits)), new Set(['AbortError']))
  assert.equal(limiter.waiting, 0)
  // Nor does a wait that ends by itself.
  const { signal } = new AbortController()
  const quick = new Limiter('200/s burst 1')
  await Promise.all([quick.acquire(1, { signal }), quick.acquire(1, { signal })])
  assert.equal(getEventListeners(signal, 'abort').length, 0)
})

test('one signal ends many waits, without a warning', async () => {
  const warned = []
  const warn = (warning) => warned.push(warning.message)
  process.on('warning', warn)
  const limiter = new Limiter('1/h')
  limiter.tryAcquire()
  const abort = new AbortController()
  const waits = Array.from({ length: 100 }, () => limiter.acquire(1, { signal: abort.signal }))
  abort.abort()
  const ends = await Promise.allSettled(waits)
  assert.ok(ends.every(({ reason }) => reason === abort.signal.reason))
  await sleep(5)
  process.off('warning', warn)
  assert.deepEqual([warned, limiter.waiting], [[], 0])
})

test('others of the loop get their turn while many callers go on', async () => {
  const limiter = new Limiter('1000000000/s')
  let isOver = false
  let turns = 0
  const turn = () => {
    turns++
    if (!isOver) setImmediate(turn)
  }
  setImmediate(turn)
  for (let at = 0; at < 10_000; at++) await limiter.acquire()
  isOver = true
  assert.ok(turns > 50, `${turns}`)
})

test('a refused call keeps no earlier one from going on', async () => {
  const limiter = new Limiter('20/s burst 1')
  limiter.tryAcquire()
  const wait = limiter.acquire()
  await tick()
  await assert.rejects(limiter.acquire(1, { timeout: 0 }), TooLong)
  await assert.rejects(limiter.acquire(2))
  await limiter.acquire(0)
  await wait
})

test('a timeout refuses at once, and also ends waits for a release', async () => {
  const limiter = new Limiter('1/h')
  assert.ok(limiter.tryAcquire())
  const begin = performance.now()
  await assert.rejects(limiter.acquire(1, { timeout: '10s' }), TooLong)
  assert.ok(performance.now() - begin < 5000)
  await assert.rejects(limiter.acquire(1, { timeout: 0 }), TooLong)
  const flights = new Limiter({ policy: 'concurrency', permits: 1 })
  await flights.acquire(1, { timeout: 0 })
  await assert.rejects(flights.acquire(1, { timeout: 5 }), TooLong)
  assert.equal(flights.waiting, 0)
})

test('closing ends all waits, and iterators with them', async () => {
  const limiter = new Limiter('1/h')
  const seen = []
  const iterating = (async () => {
    for await (const grant of limiter) seen.push(grant.permits)
  })()
  await tick()
  const waits = Array.from({ length: 3 }, () => limiter.acquire())
  await tick()
  assert.deepEqual([seen, limiter.waiting], [[1], 4])
  limiter.close()
  for (const wait of [iterating, ...waits]) await assert.rejects(wait, Closed)
})

test('a wrapped function waits for its permits, and keeps its receiver and its result', async () => {
  const clock = new ManualClock()
  const limiter = new Limiter('4/s burst 4', { clock })
  class Client {
    base = 40
    get = limiter.wrap(function get (add, cost) {
      return this.base + add
    }, { permits: (add, cost) => cost })
  }
  const client = new Client()
  assert.equal(client.get.name, 'get')
  assert.equal(await client.get(2, 3), 42)
  assert.equal(limiter.remaining, 1)
  const later = client.get(3, 2)
  await clock.settle()
  assert.equal(limiter.waiting, 1)
  clock.advance(250)
  await clock.settle()
  assert.equal(await later, 43)
  await assert.rejects(client.get(1, NaN), RangeError)
})

test('limiters of one key are one line', async () => {
  const [keyed, order] = [new Keyed('50/s burst 3'), []]
  assert.ok(keyed.tryAcquire('k', 3))
  const go = (number) => keyed.limiter('k').acquire().then(() => order.push(number))
  const going = [0, 1, 2].map(go)
  // The loop is busy until all are free, and two more.
  for (const begin = performance.now(); performance.now() - begin < 150;);
  going.push(go(3), go(4))
  await Promise.all(going)
  assert.deepEqual(order, [0, 1, 2, 3, 4])
})

test('waits outlive the objects of their limiter, and collected handles leave nothing', async () => {
  let wait = new Limiter('50/s burst 1')
  wait.tryAcquire()
  wait = wait.acquire()
  global.gc()
  await tick()
  global.gc()
  assert.equal((await wait).permits, 1)
  // A table keeps a key while there is a handle of it, so it has no slot for others until all
  // handles are collected.
  const keyed = new Keyed('1000000/s', { maxKeys: 1, whenFull: 'refuse' })
  const full = () => {
    try {
      return !keyed.tryAcquire('other')
    } catch {
      return true
    }
  }
  (() => keyed.limiter('key').tryAcquire())()
  await sleep(5)
  assert.ok(full())
  for (let turn = 0; turn < 100 && full(); turn++) {
    global.gc()
    await sleep(5)
  }
  assert.ok(!full())
})
