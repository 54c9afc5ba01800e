// One limit of several processes, over a real redis-server that the tests start.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { after, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import { ExceedsCapacity, Shared, TooLong, Unavailable } from 'rategate'

import { BUDGET, Server, freePort, hasServer, options } from './redis.js'

/** Runs a program, and resolves with the words that it prints. */
function run (program) {
  const code = `import { Shared } from 'rategate'\n${program}`
  return new Promise((resolve, reject) => {
    const given = { cwd: import.meta.dirname ?? '.', timeout: 60_000, maxBuffer: 1 << 26 }
    execFile(process.execPath, ['--input-type=module', '-e', code], given, (error, stdout) => {
      if (error) reject(error)
      else resolve(stdout.split(/\s+/).filter((word) => word))
    })
  })
}

/** Returns the most starts in any window, by pairs of loops: too simple to be wrong. */
function fullest (starts, window) {
  return Math.max(...starts.map((first) => starts.filter((at) => at >= first && at < first + window).length))
}

let server
before(async () => {
  if (hasServer) server = await Server.start()
})
after(() => server?.kill())

let names = 0
const shared = (limit, more = {}) => new Shared(server.url, limit, { budget: BUDGET, name: `test-${++names}`, ...more })

test('a key has its own permits, and a denial says when to come again', options, async () => {
  const limit = shared('1/h burst 3')
  assert.deepEqual([await limit.tryAcquire('a', 2), await limit.tryAcquire('a', 2), await limit.tryAcquire('a')], [true, false, true])
  const denied = await limit.check('a')
  assert.equal(denied.granted, false)
  assert.equal(denied.by, 'store')
  assert.ok(denied.retryAfter > 3_590_000 && denied.retryAfter <= 3_600_000)
  assert.equal(await limit.remaining('b'), 3)
  const granted = await limit.check(7)
  assert.deepEqual([granted.granted, granted.remaining, granted.grant.permits], [true, 2, 1])
  assert.deepEqual((await limit.check('7')).remaining, 1)
  // A look at what remains is a call, too.
  assert.deepEqual(limit.counts.store, { granted: 5, denied: 2 })
})

test('callers go on in the order of their calls, and none early', options, async () => {
  const limit = shared('200/s burst 1')
  const passed = []
  const begin = performance.now()
  await Promise.all(Array.from({ length: 40 }, async (_, at) => {
    await limit.acquire('k')
    passed.push([at, performance.now() - begin])
  }))
  assert.deepEqual(passed.map(([at]) => at), Array.from({ length: 40 }, (_, at) => at))
  for (const [at, ms] of passed) assert.ok(ms >= (at - 1) * 5, `${at} after ${ms} ms`)
  assert.equal(limit.counts.store.granted, 40)
  assert.ok(limit.counts.store.denied < 120, `${limit.counts.store.denied} requests that were denied`)
  assert.equal(limit.waiting('k'), 0)
})

test('an abort or a timeout ends a wait, and leaves the line', options, async () => {
  const limit = shared('1/h burst 1')
  await limit.acquire('k')
  const stop = new AbortController()
  const waits = [1, 2, 3].map(() => limit.acquire('k', 1, { signal: stop.signal }))
  while (limit.waiting('k') < 3) await sleep(1)
  stop.abort(new Error('enough'))
  for (const each of await Promise.allSettled(waits)) assert.equal(each.reason?.message, 'enough')
  assert.equal(limit.waiting('k'), 0)
  await assert.rejects(limit.acquire('k', 1, { signal: stop.signal }), /enough/)
  await assert.rejects(limit.acquire('k', 1, { timeout: '10s' }), (error) => {
    assert.ok(error instanceof TooLong)
    return error.retryAfter > 3_590_000
  })
  await assert.rejects(limit.acquire('k', 2), ExceedsCapacity)
})

test('a refundable grant comes back, and another cannot', options, async () => {
  const limit = shared('1/h burst 3')
  const grant = await limit.acquire('k', 3, { refundable: true })
  limit.refund('k', grant, 2)
  while (await limit.remaining('k') !== 2) await sleep(1)
  const plain = await limit.acquire('k')
  assert.throws(() => limit.refund('k', plain), /refundable: true/)
  assert.throws(() => limit.refund('k', {}), TypeError)
  assert.throws(() => limit.refund('k', grant, 2), { name: 'RangeError', message: /1 are left of it/ })
  assert.throws(() => limit.refund('l', grant, 1), { name: 'RangeError', message: /another limiter or key/ })
  assert.throws(() => shared('1/h burst 3').refund('k', grant, 1), RangeError)
})

test('two processes never exceed one limit', options, async () => {
  const program = `
    import { monitorEventLoopDelay } from 'node:perf_hooks'
    const delay = monitorEventLoopDelay({ resolution: 2 })
    delay.enable()
    const limit = new Shared('${server.url}', '20 per any 400ms', { name: 'bound', budget: '100ms' })
    await limit.ready()
    await assert.rejects(limit.ready('soon'), { name: 'RangeError', message: /^timeout is "soon": / })
    const starts = []
    const until = Date.now() + 2000
    await Promise.all(Array.from({ length: 30 }, async () => {
      while (Date.now() < until) {
        await limit.acquire('k')
        starts.push(process.hrtime.bigint() / 1000n)
      }
    }))
    console.log(delay.max, starts.join(' '))`
  for (let round = 1; ; round++) {
    const logs = (await Promise.all([run(program), run(program)])).map((words) => words.map(Number))
    // What a process does comes within the budget after the decision of the store, unless the machine
    // stops the process then.
    if (logs.some(([stalledNs]) => stalledNs > 40e6) && round < 10) continue
    const starts = logs.flatMap((log) => log.slice(1))
    assert.equal(fullest(starts, 300_000), 20, 'never more, and reached, or nothing is tested')
    assert.ok(logs.every((log) => log.length > 1) && starts.length >= 80)
    return
  }
})

test('leased permits keep the bound and the rate', options, async () => {
  for (const [guard, most] of [[true, 100], [false, 120]]) {
    const program = `
      const limit = new Shared('${server.url}', '100 per any 500ms',
        { mode: 'leased', lease: '50ms', leasePermits: 10, guard: ${guard}, name: 'leased-${guard}' })
      await limit.ready()
      const starts = []
      const until = Date.now() + 2000
      while (Date.now() < until) {
        await limit.acquire('k')
        starts.push(process.hrtime.bigint() / 1000n)
      }
      console.log(limit.counts.lease.granted, starts.join(' '))`
    const logs = (await Promise.all([run(program), run(program)])).map((words) => words.map(Number))
    assert.ok(logs[0][0] + logs[1][0] > 0, 'something was borrowed')
    const starts = logs.flatMap((log) => log.slice(1))
    assert.ok(fullest(starts, 400_000) <= most, `${fullest(starts, 400_000)} of ${most}`)
    assert.ok(starts.length >= 200, `${starts.length}`)
  }
})

test('a killed store is followed as whenGone says, and the bound held', options, async () => {
  const own = await Server.start()
  try {
    const more = { quarantine: true, budget: '100ms' }
    const limit = new Shared(own.url, '10 per any 1s', { name: 'deny', ...more })
    const open = new Shared(own.url, '10 per any 1s', { name: 'allow', whenGone: 'allow', ...more })
    const starts = []
    const play = async (ms) => {
      const until = performance.now() + ms
      while (performance.now() < until) if (await limit.tryAcquire('k')) starts.push(performance.now())
    }
    while (!(await limit.tryAcquire('other'))) await sleep(20)
    await play(500)
    await own.kill()
    const gone = performance.now()
    await play(300)
    assert.ok(starts.length === 10 && starts.every((at) => at < gone))
    const denied = await limit.check('k')
    assert.deepEqual([denied.granted, denied.by], [false, 'fallback'])
    assert.ok(limit.counts.fallback.denied > 0 && limit.lastFailure !== null)
    await assert.rejects(limit.acquire('k'), Unavailable)
    assert.ok(await open.tryAcquire('k', 10) && await open.tryAcquire('k', 10))
    await own.start()
    const until = performance.now() + 20_000
    while (starts.at(-1) < gone && performance.now() < until) await play(100)
    assert.ok(starts.at(-1) > gone, 'it grants again')
    await play(2000)
    assert.ok(fullest(starts, 900) <= 10)
    assert.equal(limit.status, 'healthy')
  } finally {
    await own.kill()
  }
})

test('files are read while limits wait for stores that are not there', options, async () => {
  const url = `redis://127.0.0.1:${await freePort()}`
  const waits = Array.from({ length: 6 }, () => new Shared(url, '1/s').ready('3s').catch((error) => error))
  const file = readFile(import.meta.filename ?? process.argv[1])
  assert.ok(await Promise.race([file, ...waits]) instanceof Buffer)
  for (const end of await Promise.all(waits)) assert.ok(end instanceof Unavailable)
})

test('a store that cannot be used is a typed error and no wait', options, async () => {
  const guarded = await Server.start('--requirepass', 'sesame')
  try {
    assert.ok(await new Shared(guarded.url.replace('//', '//:sesame@'), '1/s', { budget: BUDGET }).tryAcquire())
    for (const [url, reason] of [
      [guarded.url.replace('//', '//:wrong@'), /WRONGPASS/],
      [guarded.url, /NOAUTH/],
      [guarded.url.replace('//', '//:sesame@') + '/999', /no database of this number/],
      [`redis://127.0.0.1:${await freePort()}`, /refused/]
    ]) {
      const limit = new Shared(url, '1/s', { budget: BUDGET })
      await assert.rejects(limit.acquire(), (error) => error instanceof Unavailable && reason.test(error.message))
      await assert.rejects(limit.ready('1s'), (error) => error instanceof Unavailable && reason.test(error.message))
      assert.equal(await limit.tryAcquire(), false)
    }
  } finally {
    await guarded.kill()
  }
})

test('mistakes are errors of the constructor', () => {
  const url = 'redis://127.0.0.1:1'
  for (const [url, message] of [['redis://h:65536', /port must be a number from 0 to 65535/], ['http://h', /must begin with "redis:\/\/" or "unix:\/"/]]) {
    assert.throws(() => new Shared(url, '1/s'), (error) => message.test(error.message) && !error.message.includes('rediss'))
  }
  assert.throws(() => new Shared('redis://:secret@h:port', '1/s'), (error) => {
    return error instanceof RangeError && /address/.test(error.message) && !/secret/.test(error.message)
  })
  assert.throws(() => new Shared(url, { policy: 'concurrency', permits: 2 }), /does not know the policy \(policy = "concurrency", permits = 2\)/)
  assert.throws(() => new Shared(url, '1/s', { mode: 'fast' }), /"exact" or "leased"/)
  assert.throws(() => new Shared(url, '1/s', { whenGone: 'local' }), /processes/)
  assert.throws(() => new Shared(url, '1/s', { lease: 1 }), /leased/)
  assert.throws(() => new Shared(url, '1/s', { name: 'a b' }), /the name/)
  assert.throws(() => new Shared(url, '1/s', { limit: 1 }), /no option/)
})

test('a call keeps the process, and the process ends after it', options, async () => {
  const words = await run(`
    const limit = new Shared('${server.url}', '10/s burst 1', { name: 'keeps', budget: '2s' })
    await limit.acquire()
    limit.acquire().then(() => console.log('granted'))`)
  assert.deepEqual(words, ['granted'])
})
