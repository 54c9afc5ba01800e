// The names of p-throttle and Bottleneck, and what is different from them. Also all examples.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

import { ExceedsCapacity } from 'rategate'
import Bottleneck from 'rategate/compat/bottleneck'
import pThrottle from 'rategate/compat/p-throttle'

const { BottleneckError } = Bottleneck

test('p-throttle: calls start in order, and no interval has more than the limit', async () => {
  const starts = []
  const throttled = pThrottle({ limit: 3, interval: 60 })((call) => starts.push([call, performance.now()]))
  const begin = performance.now()
  await Promise.all(Array.from({ length: 12 }, (_, call) => throttled(call)))
  assert.deepEqual(starts.map(([call]) => call), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])
  // The first may itself have started late.
  for (let at = 3; at < 12; at++) assert.ok(starts[at][1] - begin >= Math.floor(at / 3) * 60, `${at}`)
})

test('p-throttle: this, arguments, results and errors pass through', async () => {
  const delayed = []
  const throttle = pThrottle({ limit: 2, interval: 30, strict: true, onDelay: (...args) => delayed.push(args) })
  const subject = { factor: 3, times: throttle(function (number) { return this.factor * number }) }
  const fails = throttle(async () => { throw new Error('own') })
  assert.deepEqual(await Promise.all([subject.times(1), subject.times(2), subject.times(3)]), [3, 6, 9])
  await assert.rejects(fails(), /own/)
  // Functions of one throttle share it.
  assert.deepEqual(delayed[0], [3])
  subject.times.isEnabled = false
  const many = Array.from({ length: 50 }, () => subject.times(1))
  assert.deepEqual([subject.times.queueSize, (await Promise.all(many)).length], [0, 50])
})

test('p-throttle: an abort rejects what waits, and resets nothing', async () => {
  const control = new AbortController()
  let calls = 0
  const throttled = pThrottle({ limit: 1, interval: 10_000, signal: control.signal })(() => calls++)
  await throttled()
  const waits = [throttled(), throttled()]
  assert.equal(throttled.queueSize, 2)
  control.abort('own reason')
  for (const wait of waits) await assert.rejects(wait, (reason) => reason === 'own reason')
  // A difference: a later call is rejected too, where p-throttle's would start with a fresh limit.
  await assert.rejects(throttled(), (reason) => reason === 'own reason')
  assert.deepEqual([calls, throttled.queueSize], [1, 0])
  assert.throws(() => pThrottle({ limit: 1, interval: 1, signal: AbortSignal.abort() }), { name: 'AbortError' })
})

test('p-throttle: weights are whole numbers that fit', async () => {
  const throttled = pThrottle({ limit: 5, interval: 50, weight: (weight) => weight })(() => performance.now())
  const begin = performance.now()
  const starts = await Promise.all([3, 3, 2, 0].map((weight) => throttled(weight)))
  // A difference: a smaller call does not overtake, unless it weighs nothing.
  assert.ok(starts[1] - begin >= 50 && starts[2] >= starts[1] && starts[3] < starts[1])
  await assert.rejects(throttled(6), ExceedsCapacity)
  await assert.rejects(throttled(0.5), RangeError)
  const wrong = [[{ limit: 0, interval: 1 }, RangeError], [{ limit: 1.5, interval: 1 }, RangeError], [{ limit: 1, interval: -1 }, RangeError], [{ limit: NaN, interval: 1 }, TypeError], [{ limit: 1 }, TypeError], [{ limit: 1, interval: 1, weight: 2 }, TypeError], [{ limit: 1, interval: 1, extra: 2 }, TypeError]]
  for (const [options, kind] of wrong) assert.throws(() => pThrottle(options), kind)
  const free = pThrottle({ limit: 1, interval: 0 })(() => 7)
  assert.deepEqual(await Promise.all([free(), free()]), [7, 7])
})

test('Bottleneck: jobs are spaced, and so many run at a time', async () => {
  const limiter = new Bottleneck({ maxConcurrent: 2, minTime: 15.5 })
  const [starts, begin] = [[], performance.now()]
  let [running, most] = [0, 0]
  const job = async (name) => {
    starts.push([name, performance.now()])
    most = Math.max(most, ++running)
    await sleep(50)
    running--
  }
  const jobs = [0, 1, 2, 3, 4].map((name) => limiter.schedule(job, name))
  assert.deepEqual([limiter.queued(), limiter.empty(), await limiter.check()], [4, false, false])
  await Promise.all(jobs)
  assert.deepEqual([starts.map(([name]) => name), most, await limiter.running(), await limiter.done()], [[0, 1, 2, 3, 4], 2, 0, 5])
  // The first may itself have started late.
  for (let at = 1; at < 5; at++) assert.ok(starts[at][1] - begin >= at * 15.5)
  assert.equal(await limiter.check(), true)
})

test('Bottleneck: wrap, submit, chain and weights', async () => {
  const limiter = new Bottleneck({ maxConcurrent: 3 })
  const subject = { factor: 2, times: limiter.wrap(function (number) { return this.factor * number }) }
  assert.equal(await subject.times(4), 8)
  assert.equal(await limiter.wrap((a, b) => a + b).withOptions({ weight: 3 }, 1, 2), 3)
  const submitted = (fails) => new Promise((resolve) => {
    limiter.submit((text, callback) => callback(fails ? new Error(text) : null, text), 'text', (error, text) => resolve(error?.message ?? text.length))
  })
  assert.deepEqual([await submitted(false), await submitted(true)], [4, 'text'])
  const next = new Bottleneck({ maxConcurrent: 1 })
  limiter.chain(next)
  let [running, most] = [0, 0]
  await Promise.all([1, 2, 3].map(() => limiter.schedule(async () => {
    most = Math.max(most, ++running)
    await sleep(5)
    running--
  })))
  assert.deepEqual([most, await next.done()], [1, 3])
  await assert.rejects(limiter.schedule({ weight: 4 }, () => {}), ExceedsCapacity)
})

test('Bottleneck: a full line drops the oldest job, or the new one', async () => {
  for (const [strategy, dropped] of [[Bottleneck.strategy.LEAK, [1, 2]], [Bottleneck.strategy.OVERFLOW, [3, 4]]]) {
    const events = []
    const limiter = new Bottleneck({ maxConcurrent: 1, highWater: 2, strategy }).on('dropped', ({ args }) => events.push(args[0]))
    const ends = await Promise.allSettled([0, 1, 2, 3, 4].map((name) => limiter.schedule(async () => sleep(10, name), name)))
    const failed = ends.flatMap(({ status, reason }, at) => status === 'rejected' && reason instanceof BottleneckError ? [at] : [])
    assert.deepEqual([failed, events], [dropped, dropped])
  }
})

test('Bottleneck: a job that can start at once does not count as one that waits', async () => {
  for (const strategy of Object.values(Bottleneck.strategy)) {
    const limiter = new Bottleneck({ maxConcurrent: 2, highWater: 0, strategy })
    let isLate = false
    const jobs = [0, 1, 2].map((name) => limiter.schedule(async () => isLate && sleep(5, name)))
    assert.equal(limiter.queued(), 0)
    isLate = true
    const ends = await Promise.allSettled(jobs)
    assert.deepEqual(ends.map(({ value, reason }) => reason?.name ?? value), [0, 1, 'BottleneckError'])
    assert.equal(await limiter.schedule(async () => 'later'), await limiter.schedule(() => 'later'))
    const spaced = new Bottleneck({ minTime: 60_000, highWater: 0, strategy })
    assert.equal(await spaced.schedule(() => 'first'), 'first')
    await assert.rejects(spaced.schedule(() => 'second'), BottleneckError)
    const reserved = new Bottleneck({ reservoir: 3, highWater: 0, strategy })
    assert.deepEqual(await Promise.all([1, 2].map((weight) => reserved.schedule({ weight }, () => weight))), [1, 2])
    await assert.rejects(reserved.schedule(() => 'third'), BottleneckError)
  }
})

test('Bottleneck: reservoirs end, and are filled', async () => {
  const limiter = new Bottleneck({ reservoir: 2 })
  const depleted = new Promise((resolve) => limiter.once('depleted', resolve))
  const jobs = [1, 2, 3].map((name) => limiter.schedule(async () => name))
  assert.deepEqual(await Promise.all(jobs.slice(0, 2)), [1, 2])
  await depleted
  assert.deepEqual([await limiter.currentReservoir(), limiter.queued(), await limiter.check()], [0, 1, false])
  assert.equal(await limiter.incrementReservoir(2), 1)
  assert.equal(await jobs[2], 3)
  const refreshed = new Bottleneck({ reservoir: 2, reservoirRefreshAmount: 2, reservoirRefreshInterval: 50 })
  const [begin, window] = [performance.now(), 50]
  const starts = await Promise.all([1, 2, 3, 4, 5].map(() => refreshed.schedule(async () => performance.now())))
  // It takes three windows, of which the first had begun.
  assert.ok(starts[4] - begin >= window)
  await assert.rejects(refreshed.incrementReservoir(1), TypeError)
})

test('Bottleneck: failed jobs are retried as their listener says, and expire', async () => {
  const limiter = new Bottleneck({ maxConcurrent: 1 })
  const seen = []
  limiter.on('failed', async (error, { retryCount, options }) => {
    seen.push([error.message, retryCount, options.id])
    return retryCount < 2 ? 1 : undefined
  })
  await assert.rejects(limiter.schedule({ id: 'a job' }, async () => { throw new Error('own') }), /own/)
  assert.deepEqual(seen, [0, 1, 2].map((count) => ['own', count, 'a job']))
  limiter.removeAllListeners('failed')
  await assert.rejects(limiter.schedule({ expiration: 5 }, () => sleep(1000, null, { ref: false })), (error) => error instanceof BottleneckError && /timed out after 5 ms/.test(error.message))
  assert.deepEqual(limiter.counts(), { RECEIVED: 0, QUEUED: 0, RUNNING: 0, EXECUTING: 0, DONE: 2 })
})

test('Bottleneck: stop drops what waits, or lets it end', async () => {
  const limiter = new Bottleneck({ maxConcurrent: 1 })
  const first = limiter.schedule(() => sleep(20, 'first'))
  const second = limiter.schedule(() => 'second')
  second.catch(() => {})
  await sleep(1)
  const idle = new Promise((resolve) => limiter.on('idle', resolve))
  await limiter.stop({ dropErrorMessage: 'dropped here' })
  await assert.rejects(second, /dropped here/)
  assert.equal(await first, 'first')
  await idle
  await assert.rejects(limiter.schedule(() => {}), /cannot accept new jobs/)
  const waits = new Bottleneck({ maxConcurrent: 1, minTime: 5 })
  const jobs = [1, 2, 3].map((name) => waits.schedule(async () => name))
  await waits.stop({ dropWaitingJobs: false })
  assert.deepEqual(await Promise.all(jobs), [1, 2, 3])
})

test('Bottleneck: a group has a limiter for each key, and drops idle ones', async () => {
  const created = []
  const group = new Bottleneck.Group({ maxConcurrent: 1, timeout: 300 }).on('created', (limiter, key) => created.push(key))
  assert.equal(group.key('a'), group.key('a'))
  for (let at = 0; at < 20; at++) group.key(`key ${at}`)
  const busy = group.key('busy').schedule(() => sleep(600))
  assert.equal(group.keys().length, 22)
  await sleep(350)
  group.key('b')
  assert.deepEqual([group.keys().sort(), created.length], [['b', 'busy'], 23])
  await busy
  assert.equal(await group.deleteKey('b'), true)
  assert.deepEqual(group.limiters().map(({ key }) => key), ['busy'])
})

test('Bottleneck: what is not supported is refused with a sentence', async () => {
  const wrong = [[{ datastore: 'redis' }, /no option 'datastore'/], [{ strategy: 3 }, /strategy is 3/], [{ highWater: 0.5 }, /highWater is 0.5/], [{ maxConcurrent: 0 }, /concurrency|permits/], [{ reservoir: 5, reservoirRefreshInterval: 10, reservoirRefreshAmount: 6 }, /must be equal/], [{ reservoirIncreaseAmount: 5 }, /no option/]]
  for (const [options, message] of wrong) assert.throws(() => new Bottleneck(options), message)
  const limiter = new Bottleneck()
  await assert.rejects(limiter.schedule({ priority: 1 }, () => {}), /priority is 1; jobs start in the order of their calls/)
  await assert.rejects(limiter.schedule('run'), TypeError)
  assert.throws(() => limiter.wrap(5), TypeError)
  assert.throws(() => limiter.chain(5), TypeError)
  assert.equal(await limiter.schedule({ priority: 5 }, () => 7), 7)
  assert.equal(await limiter.currentReservoir(), null)
})

const examples = new URL('../examples/', import.meta.url)
test('each example shows what it says', async () => {
  const files = readdirSync(examples)
  const run = (file) => promisify(execFile)(process.execPath, [fileURLToPath(new URL(file, examples))], { timeout: 60_000 })
  for (const { stdout } of await Promise.all(files.map(run))) assert.ok(stdout.length > 0)
  assert.equal(files.length, 9)
})
