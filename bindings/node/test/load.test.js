// Loads whose operations are released when they are due.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { getEventListeners } from 'node:events'
import { test } from 'node:test'
import { setImmediate as tick } from 'node:timers/promises'
import { promisify } from 'node:util'

import { Limiter, ManualClock, OpenLoop } from 'rategate'

/** Moves a clock from wait to wait until the promise is settled. */
async function drive (clock, promise) {
  let isOver = false
  const over = promise.finally(() => { isOver = true })
  while (!isOver) {
    await clock.settle()
    if (!isOver) clock.step()
  }
  return over
}

/** Collects all releases. */
async function all (loop) {
  const releases = []
  for await (const release of loop) releases.push(release)
  return releases
}

test('the example of the guide has the waits that it has in Rust', async () => {
  const clock = new ManualClock()
  const loop = new OpenLoop('ramp:0/s>2/s@2s then constant:2/s@1s', { clock })
  const releases = []
  const play = async () => {
    for await (const release of loop) {
      releases.push(release)
      clock.advance(release.number === 1 ? '1200ms' : '100ms')
    }
  }
  await drive(clock, play())
  assert.deepEqual(releases.map(({ wait }) => Math.floor(wait)), [0, 0, 614, 214, 0])
  assert.deepEqual(releases.map(({ number }) => number), [0, 1, 2, 3, 4])
  assert.deepEqual(releases.map(({ scheduledAt }) => Math.floor(scheduledAt)), [0, 1414, 2000, 2500, 3000].slice(0, 5))
  const { scheduledAtNs, releasedAtNs, waitNs } = releases[2]
  assert.equal(releasedAtNs - scheduledAtNs, waitNs)
  assert.equal(JSON.parse(JSON.stringify(releases[2])).waitNs, String(waitNs))
  assert.deepEqual(await loop.next(), { value: undefined, done: true })
})

test('no operation is released early, and its times are those of a stopwatch', async () => {
  const before = process.hrtime.bigint()
  const loop = new OpenLoop('constant:1000/s@200ms')
  const after = process.hrtime.bigint()
  let number = 0
  for await (const release of loop) {
    const now = process.hrtime.bigint()
    assert.equal(release.number, number++)
    assert.ok(release.releasedAtNs >= release.scheduledAtNs)
    // The two clocks may differ by some millionths.
    assert.ok((now - before) * 10_001n / 10_000n >= release.scheduledAtNs)
    assert.ok((now - after) * 10_001n / 10_000n + 1000n >= release.releasedAtNs - (after - before))
  }
  assert.equal(number, 201)
})

test('a release counts from when its caller goes on, and not from when the loop could know', async () => {
  const clock = new ManualClock()
  const loop = new OpenLoop('constant:1/s@4s', { clock })
  const waits = []
  const caller = async () => {
    waits.push((await loop.next()).value.wait)
    // The work of each delays those behind it.
    clock.advance('100ms')
  }
  const callers = [caller(), caller(), caller()]
  await clock.settle()
  clock.advance('2s')
  await Promise.all(callers)
  assert.deepEqual(waits, [0, 1100, 200])
})

test('several callers share a loop, and each operation goes to one of them in order', async () => {
  const loop = new OpenLoop('constant:2000/s@100ms')
  const released = await Promise.all([all(loop), all(loop), all(loop)])
  for (const [at, own] of released.entries()) {
    const numbers = own.map(({ number }) => number)
    assert.deepEqual(numbers, numbers.toSorted?.((a, b) => a - b) ?? numbers, `caller ${at}`)
  }
  const numbers = released.flat().map(({ number }) => number).sort((a, b) => a - b)
  assert.deepEqual(numbers, Array.from({ length: 201 }, (_, at) => at))
})

test('parts together are exactly the load', async () => {
  const clock = new ManualClock()
  const load = 'ramp:0/s>40/s@2s then constant:7/s@1s'
  const whole = new OpenLoop(load, { clock })
  const parts = [0, 1, 2].map((part) => new OpenLoop(load, { clock, part: [part, 3] }))
  clock.advance('3s')
  const due = async (loop) => (await all(loop)).map(({ scheduledAtNs }) => scheduledAtNs)
  const together = (await Promise.all(parts.map(due))).flat().sort((a, b) => (a < b ? -1 : 1))
  assert.deepEqual(together, await due(whole))
  assert.equal(together.length, 48)
})

test('an abort leaves the operation to the next call, whenever it comes', async () => {
  const clock = new ManualClock()
  const loop = new OpenLoop('constant:1/s@3s', { clock })
  await loop.next()
  const gone = new AbortController()
  const aborted = loop.next({ signal: gone.signal })
  // Before it has begun in the compiled module.
  gone.abort(new Error('at once'))
  await assert.rejects(aborted, /at once/)
  const late = new AbortController()
  const waits = loop.next({ signal: late.signal })
  await clock.settle()
  clock.advance('1s')
  // Woken, and not released yet.
  late.abort(new Error('late'))
  await assert.rejects(waits, /late/)
  assert.equal(getEventListeners(late.signal, 'abort').length, 0)
  const { value } = await loop.next({ signal: new AbortController().signal })
  assert.deepEqual([value.number, value.wait], [1, 0])
  const other = loop.next()
  clock.advance('1s')
  assert.equal((await other).value.number, 2)
  await assert.rejects(loop.next({ signal: AbortSignal.abort(new Error('before')) }), /before/)
})

test('a call that was aborted before its turn holds up nobody that was woken', async () => {
  const clock = new ManualClock()
  const loop = new OpenLoop('constant:1/s@2s', { clock })
  await loop.next()
  const waits = loop.next()
  await clock.settle()
  const gone = new AbortController()
  clock.advance('1s')
  const aborted = loop.next({ signal: gone.signal })
  gone.abort()
  await assert.rejects(aborted)
  assert.equal((await waits).value.number, 1)
})

test('a close ends the waits, and the operations', async () => {
  const loop = new OpenLoop('constant:1/h')
  await loop.next()
  const waits = [loop.next(), loop.next()]
  await tick()
  loop.close()
  waits.push(loop.next())
  for (const end of await Promise.all(waits)) assert.deepEqual(end, { value: undefined, done: true })
})

test('a load that is behind leaves the loop and a limiter their turns', async () => {
  const loop = new OpenLoop('constant:1000000000/s')
  const limiter = new Limiter('100/s burst 1')
  let released = 0
  const load = (async () => { for await (const _ of loop) released++ })()
  for (let at = 0; at < 5; at++) await limiter.acquire()
  await tick()
  loop.close()
  await load
  assert.ok(released > 64)
})

test('open waits keep the process alive, and no longer', async () => {
  const code = `
    import { OpenLoop } from 'rategate'
    const loop = new OpenLoop('constant:20/s@100ms')
    for await (const release of loop) console.log(release.number)
    loop.next()`
  const options = { cwd: import.meta.dirname ?? '.', timeout: 60_000 }
  const ran = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', code], options)
  assert.equal(ran.stdout, '0\n1\n2\n')
})

test('what makes no sense is refused with a sentence that says where', () => {
  const refuses = (kind, message, ...given) => assert.throws(() => new OpenLoop(...given), (error) => {
    assert.ok(error instanceof kind, error)
    assert.match(error.message, message)
    return true
  })
  refuses(RangeError, /^the load "ramp:0\/s>100@10s": at byte 9: not a rate/, 'ramp:0/s>100@10s')
  refuses(TypeError, /the load is 5; must be text/, 5)
  refuses(RangeError, /part 3 of 3: parts count from 0/, 'constant:1/s', { part: [3, 3] })
  refuses(RangeError, /part 0.5 of 2: both must be whole/, 'constant:1/s', { part: [0.5, 2] })
  refuses(TypeError, /part is '0\/3'; must be \[part, parts\]/, 'constant:1/s', { part: '0/3' })
  refuses(TypeError, /there is no option 'parts'/, 'constant:1/s', { parts: 3 })
  refuses(TypeError, /clock is 5/, 'constant:1/s', { clock: 5 })
})
