// Decisions and verbs, on clocks that the tests move.
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { test } from 'node:test'
import { inspect } from 'node:util'

import * as rategate from 'rategate'

const { Closed, ExceedsCapacity, Full, Grant, Keyed, Limiter, ManualClock, Never, RateLimitError, TooLong } = rategate

function on (limit, options) {
  const clock = new ManualClock()
  return { clock, limiter: new Limiter(limit, { clock, ...options }) }
}

test('a try passes while permits are free, and says when it would', () => {
  const { clock, limiter } = on('10/s burst 2')
  assert.deepEqual([limiter.tryAcquire(), limiter.tryAcquire(1), limiter.tryAcquire()], [true, true, false])
  assert.equal(limiter.peek(), 100)
  assert.equal(limiter.peekNs(2), 200_000_000n)
  const denied = limiter.check(2)
  assert.deepEqual([denied.granted, denied.grant, denied.remaining], [false, null, 0])
  assert.deepEqual([denied.retryAfter, denied.retryAfterNs], [200, 200_000_000n])
  assert.deepEqual([denied.resetAfter, denied.resetAfterNs], [200, 200_000_000n])
  clock.advance('99.999999ms')
  assert.equal(limiter.tryAcquire(), false)
  assert.equal(limiter.peek(), 0.000001)
  clock.advance('1ns')
  assert.equal(limiter.remaining, 1)
  const granted = limiter.check()
  assert.ok(granted.granted && granted.grant instanceof Grant)
  assert.deepEqual([granted.remaining, granted.retryAfter, granted.retryAfterNs], [0, null, null])
  assert.equal(limiter.nowNs, 100_000_000n)
})

// The fast functions answer with numbers; a plain count of what was granted checks their sign.
test('tries agree with a plain list of what was granted', () => {
  const { clock, limiter } = on('7 per any 50ms')
  const granted = []
  let random = 12345
  for (let turn = 0; turn < 20_000; turn++) {
    random = (random * 1103515245 + 12345) % 2147483648
    const permits = random % 4
    const now = clock.nowNs
    const used = granted.filter((at) => at > now - 50_000_000n).length
    const fits = used + permits <= 7
    assert.equal(limiter.remaining, 7 - used, `turn ${turn}`)
    if (permits > 0) {
      assert.equal(limiter.peek(permits) === 0, fits, `turn ${turn}`)
      assert.equal(limiter.tryAcquire(permits), fits, `turn ${turn}`)
      if (fits) for (let each = 0; each < permits; each++) granted.push(now)
    }
    if (granted.length > 100) granted.splice(0, 50)
    clock.advance(random % 7)
  }
})

test('time does not help where permits come back by a release', async () => {
  const { clock, limiter } = on({ policy: 'concurrency', permits: 2 })
  assert.ok(limiter.tryAcquire(2))
  assert.equal(limiter.tryAcquire(), false)
  assert.deepEqual([limiter.peek(), limiter.check().retryAfterNs], [null, null])
  assert.throws(() => limiter.reserve(), (error) => error instanceof TooLong && error.retryAfter === null)
  assert.equal(limiter.release(2), true)
  assert.equal(limiter.remaining, 2)
  assert.equal(on('1/s').limiter.release(), false)
  // Scheduled operations end by themselves, also by an error.
  const results = []
  const run = (at) => limiter.schedule(async () => {
    results.push(`start ${at}`)
    await null
    if (at === 1) throw new Error('own')
    return at
  })
  const ends = Promise.allSettled([run(0), run(1), run(2), run(3)])
  await clock.settle()
  assert.deepEqual((await ends).map((end) => end.value ?? end.reason.message), [0, 'own', 2, 3])
  assert.deepEqual(results, ['start 0', 'start 1', 'start 2', 'start 3'])
  assert.equal(limiter.remaining, 2)
})

test('several limits pass together or not at all', () => {
  const { limiter } = on(['2/s', { policy: 'fixed-window', permits: 3, period: 60_000 }])
  assert.ok(limiter.tryAcquire(2))
  assert.equal(limiter.tryAcquire(2), false)
  assert.equal(limiter.remaining, 0)
  assert.equal(on('2/s; 3 per any minute').limiter.check(2).resetAfterNs, 60_000_000_000n)
})

test('tables of a policy are objects', () => {
  const { limiter } = on({ policy: 'two-timeline', rate: '1000/s', mode: { burst: 1.5 }, catchUp: 'unbounded' })
  assert.equal(limiter.tryAcquire(), true)
  assert.throws(() => on({ policy: 'two-timeline', rate: '1000/s', mode: { bursts: 1.5 } }), RangeError)
  assert.throws(() => on({ policy: 'two-timeline', rate: '1000/s', mode: null }), TypeError)
})

test('corrections and charges change what is left', async () => {
  const { limiter } = on('10/s burst 10', { maxDebt: '0.5s' })
  const { grant, remaining } = limiter.check(4)
  assert.deepEqual([remaining, grant.permits, grant.waitNs], [6, 4, 0n])
  assert.deepEqual(limiter.tryHold(2, '1min').commit(3), { refunded: 0, charged: 1, forgiven: 0 })
  assert.equal(limiter.remaining, 3)
  const held = await limiter.hold(3, '1min')
  assert.deepEqual(held.commit(1), { refunded: 2, charged: 0, forgiven: 0 })
  assert.deepEqual(limiter.charge(100), { booked: 7, forgiven: 93, debt: 5 })
  assert.equal(limiter.peek(), 600)
  assert.equal(limiter.reset(), true)
  assert.equal(limiter.remaining, 10)
})

test('holds are waited for in line, may be given up, and have a deadline', async () => {
  const { clock, limiter } = on('10/s burst 10')
  const first = await limiter.hold(10, '1min')
  await assert.rejects(limiter.hold(6, '1min', { timeout: 599 }), TooLong)
  const control = new AbortController()
  const gone = limiter.hold(6, '1min', { signal: control.signal })
  const second = limiter.hold(5, '1min')
  const third = limiter.acquire(4)
  assert.equal(limiter.waiting, 3)
  control.abort()
  await assert.rejects(gone, { name: 'AbortError' })
  clock.advance('50ms')
  first.commit(2)
  const held = await second
  assert.deepEqual([held.permits, held.endsAtNs, limiter.waiting], [5, 60_050_000_000n, 1])
  held.cancel()
  assert.equal((await third).permits, 4)
  assert.equal((await limiter.hold(0, 1)).permits, 0)
  await assert.rejects(limiter.hold(11, '1min'), ExceedsCapacity)
  await assert.rejects(limiter.hold(1), TypeError)
  limiter.close()
  await assert.rejects(limiter.hold(1, 1), { code: 'CLOSED' })
})

test('a key that is a number or a bigint is its text', () => {
  for (const [key, text] of [
    [7, '7'], [-0, '0'], [-7n, '-7'], [0.5, '0.5'], [1e21, '1e+21'],
    [2n ** 64n, '18446744073709551616'],
    // Numbers of more than 53 bits are rounded before the table sees them.
    [2 ** 53 + 1, '9007199254740992'], [2n ** 53n + 1n, '9007199254740993']
  ]) {
    const keyed = new Keyed('1/h')
    assert.deepEqual([keyed.tryAcquire(key), keyed.tryAcquire(text), keyed.size], [true, false, 1], text)
  }
})

test('the states of a table take no more bytes than it may have', () => {
  const counted = (options) => {
    const clock = new ManualClock()
    const keyed = new Keyed('100 per any minute', { clock, ...options })
    let passed = 0
    for (let key = 0; key < 40; key++) {
      for (let at = 0; at < 100; at++) {
        clock.advance(0.001)
        try {
          passed += keyed.tryAcquire(key)
        } catch (error) {
          assert.ok(error instanceof Full)
        }
      }
    }
    return passed
  }
  assert.equal(counted({}), 4000)
  assert.equal(counted({ maxBytes: 2 ** 20 }), 4000)
  const few = counted({ maxBytes: 2 ** 14 })
  assert.ok(few > 40 && few < 2000, `${few} passed`)
})

test('a closed limiter and all objects can be printed, and are JSON', () => {
  const { clock, limiter } = on('10/s burst 5')
  const { grant } = limiter.check(2)
  const numbers = '{ remaining: 3, waiting: 0, maxInFlight: null, closed: false, nowNs: 0n }'
  assert.equal(inspect(limiter, { breakLength: Infinity }), `Limiter ${numbers}`)
  assert.match(inspect(grant), /^Grant \{\s+permits: 2,\s+waitNs: 0n,/)
  assert.match(inspect({ decision: limiter.check() }), /grant: Grant \{/)
  assert.equal(inspect(new Keyed('1/s')), 'Keyed { size: 0, overflows: 0 }')
  assert.equal(inspect(limiter.local(2)), 'Local { unused: 0 }')
  clock.advance(1)
  assert.equal(inspect(clock), 'ManualClock { nowNs: 1000000n }')
  for (const { prototype } of [Grant, Limiter, Keyed, ManualClock]) assert.doesNotThrow(() => inspect(prototype))
  limiter.close()
  assert.deepEqual([limiter.remaining, limiter.waiting, limiter.maxInFlight, limiter.closed], [0, 0, null, true])
  assert.match(inspect(limiter), /closed: true/)
  assert.deepEqual(JSON.parse(JSON.stringify({ limiter, clock })), {
    limiter: { remaining: 0, waiting: 0, maxInFlight: null, closed: true, nowNs: '1000000' },
    clock: { nowNs: '1000000' }
  })
})

test('a method without its object says what to do', async () => {
  const { tryAcquire, check, acquire } = new Limiter('1/s')
  const { tryAcquire: tryKey } = new Keyed('1/s')
  const message = (name) => ({ name: 'TypeError', message: new RegExp(`${name}\\(\\) was called without its object.*limiter\\.${name}\\(\\)`) })
  assert.throws(() => tryAcquire(), message('tryAcquire'))
  assert.throws(() => check(), message('check'))
  assert.throws(() => tryKey('a'), message('tryAcquire'))
  await assert.rejects(acquire(), message('acquire'))
})

test('numbers of a policy that are none are named', () => {
  for (const burst of [NaN, Infinity]) {
    assert.throws(() => new Limiter({ policy: 'gcra', rate: '1/s', burst }), { name: 'RangeError', message: /burst of a policy is .*; must be finite/ })
  }
})

test('a grant is released once, and by its limiter', async () => {
  const { clock, limiter } = on('10/s burst 20')
  const { limiter: other } = on('10/s burst 20')
  const refused = (message) => ({ name: 'RangeError', message })
  assert.ok(limiter.tryAcquire(20))
  const wait = limiter.acquire()
  clock.advance(2000)
  const keyed = new Keyed('10/s', { clock })
  const foreign = [await wait, await limiter.acquire(), limiter.reserve().keep(), keyed.check('a').grant]
  for (const grant of foreign) {
    for (const wrong of [other, keyed.limiter('b')]) {
      assert.throws(() => wrong.releaseWithOutcome(grant, 'served'), refused(/another limiter or key/))
    }
  }
  // A key has one limiter, however it is called.
  assert.equal(keyed.limiter('a').releaseWithOutcome(foreign[3], 'served'), false)
  const { limiter: flights } = on({ policy: 'adaptive', ceiling: 4, first: 2 })
  const flight = flights.check().grant
  assert.ok(flights.releaseWithOutcome(flight, 'served'))
  assert.throws(() => flights.releaseWithOutcome(flight, 'served'), refused(/released once/))
  const [one, same] = [1, 2].map(() => new Limiter('9/s', { shared: 'a grant is released' }))
  assert.equal(same.releaseWithOutcome(one.check().grant, 'served'), false)
  one.close()
})

test('grants keep their numbers, however many are made', async () => {
  const { limiter } = on('5000 per any second')
  const grants = []
  for (let at = 0; at < 100; at++) grants.push(at % 2 ? await limiter.acquire(at) : limiter.check(at).grant)
  assert.deepEqual(grants.map((grant) => grant.permits), [...grants.keys()])
})

test('an estimate is held until its cost is known', () => {
  const { clock, limiter } = on('10/s burst 100')
  const hold = limiter.tryHold(80, '1min')
  assert.deepEqual([hold.permits, hold.endsAtNs, limiter.remaining], [80, 60_000_000_000n, 20])
  assert.throws(() => limiter.tryHold(80, '1min'), (error) => {
    return error instanceof TooLong && error.retryAfter === 6000 && /80 permits cannot be held now: retry in 6s/.test(error.message)
  })
  assert.deepEqual(hold.commit(15), { refunded: 65, charged: 0, forgiven: 0 })
  assert.equal(limiter.remaining, 85)
  for (const again of [() => hold.commit(15), () => hold.cancel()]) assert.throws(again, /committed, kept or cancelled/)
  assert.equal(limiter.tryHold(50, 1000).cancel(), true)
  const kept = limiter.tryHold(5, '1min')
  assert.equal(limiter.reset(), true)
  kept.keep()
  assert.equal(limiter.remaining, 100)
  limiter.charge(15)
  const late = limiter.tryHold(85, 1000)
  clock.advance(1000)
  assert.equal(limiter.remaining, 95)
  assert.deepEqual(late.commit(7), { booked: 7, forgiven: 0, debt: 0 })
  assert.equal(limiter.tryHold(5, 0).cancel(), false)
  assert.throws(() => limiter.tryHold(101, 1000), ExceedsCapacity)
  assert.throws(() => limiter.tryHold(1), TypeError)
  const busy = on({ policy: 'concurrency', permits: 1 }).limiter
  assert.ok(busy.tryAcquire())
  assert.throws(() => busy.tryHold(1, 1000), Never)
})

test('a hold that is collected counts as used', async () => {
  const { limiter } = on('100 per any hour');
  (() => limiter.tryHold(80, '1min'))()
  for (let turn = 0; turn < 20; turn++) {
    global.gc()
    await new Promise((resolve) => setTimeout(resolve, 2))
  }
  assert.equal(limiter.remaining, 20)
})

test('an adaptive limit follows outcomes', () => {
  const { clock, limiter } = on({ policy: 'adaptive', floor: 2, first: 4, ceiling: 5, method: 'aimd' })
  const [first, second] = [limiter.check(2).grant, limiter.check(2).grant]
  assert.equal(limiter.maxInFlight, 4)
  clock.advance(1000)
  assert.equal(limiter.releaseWithOutcome(first, 'served'), true)
  assert.equal(limiter.maxInFlight, 5)
  assert.throws(() => limiter.releaseWithOutcome(second, 'lost'), /'lost'; must be "served", "dropped" or "ignored"/)
  limiter.releaseWithOutcome(second, 'dropped')
  assert.deepEqual([limiter.maxInFlight, limiter.remaining], [4, 2])
  const bucket = on('1/s').limiter
  assert.equal(bucket.maxInFlight, null)
  assert.equal(bucket.releaseWithOutcome(bucket.check().grant, 'ignored'), false)
})

test('reservations are kept, cancelled, and not both', () => {
  const { limiter } = on('1/s')
  assert.equal(limiter.reserve().keep().promisedAtNs, 0n)
  const [second, third] = [limiter.reserve(), limiter.reserve()]
  assert.deepEqual([second.promisedAtNs, third.promisedAtNs], [1_000_000_000n, 2_000_000_000n])
  assert.equal(third.cancel(), true)
  assert.equal(limiter.reserve(1, { timeout: '2s' }).promisedAtNs, 2_000_000_000n)
  assert.throws(() => limiter.reserve(1, { timeout: '2s' }), TooLong)
  assert.throws(() => third.keep(), /kept or cancelled/)
})

test('a pool is refilled from outside, and numbers change in force', () => {
  const { limiter } = on({ policy: 'backfill-pool', pool: 4 })
  assert.ok(limiter.tryAcquire(limiter.remaining))
  assert.equal(limiter.refill(3), true)
  assert.equal(limiter.remaining, 3)
  const bucket = on('10/s burst 2').limiter
  assert.equal(bucket.refill(1), false)
  bucket.reconfigure('10/s burst 20')
  assert.ok(bucket.tryAcquire(2))
  // Another policy begins as used up as the bucket is.
  bucket.reconfigure('20 per any minute')
  assert.equal(bucket.remaining, 0)
  assert.throws(() => bucket.reconfigure({ policy: 'concurrency', permits: 1 }), RangeError)
})

test('a batch in a local handle raises the bound by no more than itself', () => {
  const { clock, limiter } = on('100/s burst 100')
  const local = limiter.local(10)
  let granted = 0
  while (local.tryAcquire()) granted++
  assert.equal(granted, 100)
  clock.advance('150ms')
  assert.deepEqual([local.tryAcquire(3), local.unused, limiter.remaining], [true, 7, 5])
  // What is left of the batch and what is free make a larger request.
  assert.deepEqual([local.tryAcquire(12), local.unused, limiter.remaining], [true, 0, 0])
  clock.advance('100ms')
  assert.ok(local.tryAcquire())
  local.close()
  assert.deepEqual([local.unused, limiter.remaining], [0, 9])
  assert.throws(() => limiter.local(101), ExceedsCapacity)
  assert.throws(() => limiter.local(0), RangeError)
  assert.throws(() => local.tryAcquire(0.5), RangeError)
  // Operations in flight end one by one: none is taken ahead.
  const flights = on({ policy: 'concurrency', permits: 2 }).limiter
  const handle = flights.local(2)
  assert.deepEqual([handle.tryAcquire(), handle.tryAcquire(), handle.tryAcquire(), handle.unused], [true, true, false, 0])
  assert.ok(flights.release(1))
  assert.deepEqual([handle.tryAcquire(), handle.tryAcquire()], [true, false])
  handle.close()
  assert.equal(flights.remaining, 0)
})

test('new keys of a full table share a limit, are refused, or pass', () => {
  const outcomes = ['share', 'refuse', 'admit'].map((whenFull) => {
    const keyed = new Keyed('1/h', { clock: new ManualClock(), maxKeys: 1, whenFull })
    assert.ok(keyed.tryAcquire('first'))
    try {
      return [1, 2, 3].map((key) => keyed.tryAcquire(key))
    } catch (error) {
      return error.constructor
    }
  })
  assert.deepEqual(outcomes, [[true, false, false], Full, [true, true, true]])
})

test('each key has its own limit', async () => {
  const clock = new ManualClock()
  const keyed = new Keyed('2/s', { clock })
  assert.deepEqual(['a', 'a', 'a', 'b', 7, '7', 7n].map((key) => keyed.tryAcquire(key)), [true, true, false, true, true, true, false])
  // Keys of all lengths around the fast function's buffer, which is in bytes.
  for (let length = 0; length < 300; length++) {
    for (const letter of ['x', 'ü', '的', '😀']) {
      const [key, other] = [letter.repeat(length) + '1', letter.repeat(length) + '2']
      assert.deepEqual([keyed.tryAcquire(key, 2), keyed.tryAcquire(key), keyed.tryAcquire(other)], [true, false, true], key)
      keyed.reset(key)
      keyed.reset(other)
    }
  }
  assert.deepEqual([keyed.peek('a'), keyed.remaining('a'), keyed.check('a').retryAfter], [500, 0, 500])
  const ends = []
  const { signal } = new AbortController()
  keyed.limiter('a').acquire(1, { signal }).then(() => ends.push('a'))
  keyed.limiter('b').acquire(1).then(() => ends.push('b'))
  await clock.settle()
  assert.deepEqual(ends, ['b'])
  clock.advance(500)
  await clock.settle()
  assert.deepEqual(ends, ['b', 'a'])
  assert.equal(keyed.tryHold('c', 2, '1min').commit(1).refunded, 1)
  assert.throws(() => keyed.tryHold('c', 2, '1min'), TooLong)
  assert.throws(() => keyed.tryHold({}, 2, '1min'), TypeError)
  keyed.reconfigure('4/s')
  assert.equal(keyed.remaining('d'), 4)
  assert.throws(() => new Keyed('2/s; 3/min'), /several limits/)
})

test('errors of a limit are of one family and say what would be accepted', async () => {
  const { limiter } = on('1/s', { maxWaiting: 1 })
  assert.ok(limiter.tryAcquire())
  for (const call of [() => limiter.tryAcquire(2), () => limiter.check(2), () => limiter.peek(2), () => limiter.reserve(2)]) {
    assert.throws(call, (error) => error instanceof ExceedsCapacity && error instanceof Never && error instanceof RateLimitError)
  }
  await assert.rejects(limiter.acquire(2), { name: 'ExceedsCapacity', code: 'EXCEEDS_CAPACITY' })
  await assert.rejects(limiter.acquire(1, { timeout: 400 }), (error) => {
    assert.ok(error instanceof TooLong && error instanceof RateLimitError)
    assert.deepEqual([error.waitNs, error.retryAfterNs, error.retryAfter], [1_000_000_000n, 600_000_000n, 600])
    assert.match(error.message, /retry in 600ms/)
    return error.code === 'TOO_LONG'
  })
  const first = limiter.acquire()
  await assert.rejects(limiter.acquire(), (error) => error instanceof Full && error.code === 'FULL')
  limiter.boundQueue({ waiters: 1, whenFull: 'evict-newest' })
  const second = limiter.acquire()
  await assert.rejects(first, Full)
  limiter.close()
  await assert.rejects(second, (error) => error instanceof Closed && error.code === 'CLOSED')
  assert.throws(() => limiter.tryAcquire(), Closed)
  assert.throws(() => limiter.tryAcquire(), Closed)
  assert.deepEqual([limiter.closed, limiter.waiting], [true, 0])
})

test('what makes no sense is refused with a sentence', async () => {
  const { clock, limiter } = on('5/s')
  const keyed = new Keyed('5/s')
  const permits = [[NaN, RangeError], [-1, RangeError], [0.5, RangeError], [2 ** 53, RangeError], [1e300, RangeError], [Infinity, RangeError], ['1', TypeError], [null, TypeError], [{}, TypeError], [1n, TypeError]]
  for (const [number, kind] of permits) {
    const refusal = (error) => error.constructor === kind && /^permits is .*; must be /.test(error.message)
    for (const verb of ['tryAcquire', 'check', 'peek', 'peekNs', 'reserve', 'charge', 'release', 'refill']) {
      assert.throws(() => limiter[verb](number), refusal, `${verb} ${String(number)}`)
    }
    assert.throws(() => limiter.tryHold(number, 1), refusal)
    await assert.rejects(limiter.hold(number, 1), refusal)
    assert.throws(() => keyed.tryAcquire('a', number), refusal)
    await assert.rejects(limiter.acquire(number), refusal)
  }
  const spans = [[NaN, RangeError], [-1, RangeError], [Infinity, RangeError], [1e300, RangeError], ['soon', RangeError], ['5', RangeError], [{}, TypeError], [true, TypeError], [5n, TypeError]]
  for (const [span, kind] of spans) {
    assert.throws(() => clock.advance(span), (error) => error.constructor === kind && error.message.length > 20, String(span))
    await assert.rejects(limiter.acquire(1, { timeout: span }), (error) => error.constructor === kind && error.message.startsWith('timeout is '))
  }
  const limits = [[undefined, TypeError], [7, TypeError], [null, TypeError], [[], RangeError], ['', RangeError], ['5 apples', RangeError], ['0/s', RangeError], [{}, RangeError], [{ policy: 'magic' }, RangeError], [{ policy: 'gcra', rate: 5n }, TypeError], [{ policy: 'gcra', 'ra te': '5/s' }, TypeError], [{ policy: 'fixed-window', permits: 5, period: -1 }, RangeError]]
  for (const [limit, kind] of limits) {
    assert.throws(() => new Limiter(limit), (error) => error.constructor === kind && error.message.length > 20, String(limit))
  }
  for (const options of [7, null, { maxWait: 3 }, { clock: {} }, { clock: null }, { name: 5 }, { debt: 'large' }, { shared: 'a', clock }, { maxWaiting: '3' }]) {
    assert.throws(() => new Limiter('5/s', options), TypeError)
  }
  for (const options of [{ maxWaiting: 0 }, { maxWaiting: 2 ** 32 }, { maxDebt: -1 }]) {
    assert.throws(() => new Limiter('5/s', options), RangeError)
  }
  assert.throws(() => new Keyed('5/s', { whenFull: 'evict' }), { name: 'TypeError', message: /^whenFull is 'evict'; must be "share", "refuse" or "admit"$/ })
  for (const maxKeys of [0, 0.5, 2 ** 31, '7']) assert.throws(() => new Keyed('5/s', { maxKeys }), RangeError)
  for (const maxBytes of [0, -1, 0.5, 2 ** 53, NaN, '7']) {
    const message = /maxBytes is .*; must be a whole number from 1 to 9007199254740991/
    assert.throws(() => new Keyed('5/s', { maxBytes }), { name: 'RangeError', message })
  }
  for (const key of [undefined, null, {}, Symbol('key'), true]) assert.throws(() => keyed.tryAcquire(key), TypeError)
  await assert.rejects(limiter.acquire(1, { signal: {} }), TypeError)
  await assert.rejects(limiter.acquire(1, { singal: undefined }), /there is no option 'singal'; there are signal, timeout/)
  await assert.rejects(limiter.schedule('not a function'), TypeError)
  assert.throws(() => limiter.wrap(5), TypeError)
  assert.throws(() => limiter.releaseWithOutcome({ permits: 1 }, 'served'), TypeError)
  assert.throws(() => new Grant(), Error)
  // Nothing of all that took a permit.
  assert.equal(limiter.remaining, 5)
})

test('JSON has all of a decision, a grant and an error', async () => {
  const { limiter } = on('1/s')
  const granted = limiter.check()
  const grant = { permits: 1, waitNs: '0', releasedAtNs: '0', promisedAtNs: '0', scheduledAtNs: '0' }
  const reset = { resetAfter: 1000, resetAfterNs: '1000000000' }
  assert.deepEqual(JSON.parse(JSON.stringify(granted)), { granted: true, grant, remaining: 0, retryAfter: null, retryAfterNs: null, ...reset })
  assert.deepEqual(JSON.parse(JSON.stringify(limiter.check())), { granted: false, grant: null, remaining: 0, retryAfter: 1000, retryAfterNs: '1000000000', ...reset })
  assert.equal(JSON.stringify(limiter.reserve()), '{"promisedAtNs":"1000000000"}')
  const error = await limiter.acquire(1, { timeout: 1 }).catch((error) => error)
  assert.deepEqual(JSON.parse(JSON.stringify(error)), { name: 'TooLong', message: error.message, code: 'TOO_LONG', waitNs: '2000000000', retryAfterNs: '1999000000' })
})

test('messages speak of objects and options as users write them', () => {
  assert.throws(() => new Limiter({ policy: 'gcra', rate: '5/s', bursty: 1 }), /^RangeError: limit { policy = "gcra", rate = "5\/s", bursty = 1 }: unknown keys: bursty, available keys: rate, burst/)
  assert.throws(() => new Limiter({ policy: 'magic' }), /: unknown word `magic`, expected one of `gcra`/)
  assert.throws(() => new Limiter({}), /: needs the key `policy`/)
  const shared = 'messages'
  const first = new Limiter('5/s', { shared })
  assert.throws(() => new Limiter('5/s', { shared, maxWaiting: 3, debt: 'carried', maxDebt: 5 }),
    /has the limit 5\/s, and not 5\/s, debt carried, maxDebt 5ms, maxWaiting 3;/)
  first.close()
})

test('two copies of the package in one process are each whole', () => {
  const require = createRequire(import.meta.url)
  const before = { ...require.cache }
  const copies = ['first', 'second'].map(() => {
    for (const file of Object.keys(require.cache)) delete require.cache[file]
    return require('rategate')
  })
  Object.assign(require.cache, before)
  assert.notEqual(copies[0].Keyed, copies[1].Keyed)
  for (const { Keyed, Limiter } of copies) {
    const limiter = new Keyed('1/s').limiter('a')
    assert.deepEqual([limiter instanceof Limiter, limiter.tryAcquire(), limiter.tryAcquire()], [true, true, false])
  }
})

test('both kinds of modules are one instance', () => {
  const required = createRequire(import.meta.url)('rategate')
  for (const [name, value] of Object.entries(required)) assert.equal(rategate[name], value, name)
  assert.equal(Object.keys(rategate).filter((name) => name !== 'default' && name !== 'module.exports').length, Object.keys(required).length)
})

test('a restored limiter decides as the saved one', () => {
  const limits = [
    '10/s burst 2',
    '3 per any second',
    ['10/s burst 2', '5 per any second'],
    { policy: 'fixed-window', permits: 3, period: '1s', anchor: 'first-call' },
    { policy: 'two-timeline', rate: '5/s', mode: 'strict' },
    { policy: 'backfill-pool', pool: 3, rate: '5/s' }
  ]
  for (const limit of limits) {
    const { clock, limiter } = on(limit)
    while (limiter.tryAcquire()) clock.advance(20)
    const saved = limiter.save()
    assert.ok(saved instanceof Uint8Array)
    clock.advance(150)
    const restored = Limiter.restore(limit, Buffer.from(saved), { clock })
    for (let turn = 0; turn < 30; turn++) {
      assert.equal(restored.peekNs(), limiter.peekNs(), JSON.stringify(limit))
      assert.equal(restored.tryAcquire(), limiter.tryAcquire(), JSON.stringify(limit))
      clock.advance(70)
    }
  }
})

test('the time away counts as far as it is trusted', () => {
  const { clock, limiter } = on('1/h')
  limiter.tryAcquire()
  const saved = limiter.save()
  clock.advance('1h')
  assert.equal(Limiter.restore('1/h', saved, { clock }).peek(), 0)
  assert.equal(Limiter.restore('1/h', saved, { clock, maxDowntime: '30min' }).peek(), 1_800_000)
  // By the wall clock no time to speak of has passed.
  assert.ok(Limiter.restore('1/h', saved).peek() > 3_500_000)
  assert.ok(Limiter.restore('1/h', saved, { maxDowntime: 0 }).peek() > 3_599_000)
})

test('bytes of another state are refused', () => {
  const saved = on('1/s').limiter.save()
  const refuses = (limit, bytes, message) => assert.throws(() => Limiter.restore(limit, bytes), { name: 'RangeError', message })
  refuses('1 per any second', saved, '`1 per any 1s` cannot continue from these bytes: the limit is of another policy, gcra')
  refuses(['1/s', '5/min'], saved, /has 1 limits, but 2 policies were given/)
  for (let at = 0; at < saved.length; at++) {
    refuses('1/s', saved.subarray(0, at), /ends early|not a rategate snapshot/)
    const changed = Uint8Array.from(saved)
    changed[at] ^= 1
    refuses('1/s', changed, /cannot continue from these bytes/)
  }
  refuses('1/s', Uint8Array.of(...saved, 32), `\`1/s\` cannot continue from these bytes: the snapshot is malformed at byte ${saved.length}: no valid record begins there`)
  for (const wrong of [undefined, null, 'text', [1, 2], new ArrayBuffer(4)]) {
    assert.throws(() => Limiter.restore('1/s', wrong), { name: 'TypeError', message: /must be the Uint8Array of save/ })
  }
  assert.throws(() => Limiter.restore('1/s', saved, { shared: 'all' }), /a restored limiter is not shared/)
  assert.throws(() => Limiter.restore('1/s', saved, { maxDown: 1 }), /there is no option 'maxDown'|there is no option "maxDown"/)
})

test('the options of a restored limiter are those of any', () => {
  class Named extends Limiter {}
  const { clock, limiter } = on('1/s')
  const restored = Named.restore('1/s', limiter.save(), { clock, debt: 'carried', maxWaiting: 2 })
  assert.ok(restored instanceof Named)
  restored.tryAcquire()
  const waits = [restored.acquire(), restored.acquire()]
  assert.equal(restored.waiting, 2)
  restored.close()
  return Promise.all([...waits.map((wait) => assert.rejects(wait, Closed)), assert.rejects(restored.acquire(), Closed)])
})

test('what is no number of an option or a key is named', () => {
  const { limiter } = on('1/s')
  assert.throws(() => new Limiter('1/s', { maxWaiting: -1 }), /^RangeError: maxWaiting is -1/)
  assert.throws(() => limiter.boundQueue({ waiters: 0.5 }), /^RangeError: waiters is 0.5/)
  assert.throws(() => new Keyed('1/s').check(NaN), /^TypeError: the key is NaN/)
})
