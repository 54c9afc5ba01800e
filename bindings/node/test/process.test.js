// What waits do to the process, and limits of several workers.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { cp, mkdtemp, rm } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'

import { Limiter } from 'rategate'

/** Runs a program, and returns its output and its exit code. */
function run (program) {
  const code = `import { Limiter, ManualClock } from 'rategate'\n${program}`
  return new Promise((resolve) => {
    const options = { cwd: import.meta.dirname ?? '.', timeout: 60_000 }
    execFile(process.execPath, ['--input-type=module', '-e', code], options, (error, stdout, stderr) => {
      resolve({ output: stdout.trim(), code: error ? error.code ?? error.signal : 0, stderr })
    })
  })
}

/** Starts a worker that has `limiter`, and resolves with what it posts first. */
function worker (limiter, program) {
  const code = `
    const { parentPort } = require('node:worker_threads')
    const { Limiter } = require('rategate')
    const limiter = new Limiter(${JSON.stringify(limiter.limit)}, { shared: ${JSON.stringify(limiter.shared)} })
    ;(async () => { ${program} })()`
  const started = new Worker(code, { eval: true })
  const posted = new Promise((resolve, reject) => {
    started.once('message', resolve)
    started.once('error', reject)
  })
  return { started, posted }
}

test('a wait keeps the process, and the process ends after it', async () => {
  const waits = await run(`
    const limiter = new Limiter('20/s burst 1')
    limiter.tryAcquire()
    limiter.acquire().then(() => console.log('granted'))`)
  assert.deepEqual(waits, { output: 'granted', code: 0, stderr: '' })
})

test('waits of a limiter without a reference let the process end', async () => {
  for (const [program, output] of [
    ["const limiter = new Limiter('1/h').unref(); limiter.tryAcquire()", ''],
    // Also where the wait began before.
    ["const limiter = new Limiter('1/h'); limiter.tryAcquire(); setImmediate(() => limiter.unref())", ''],
    ["const clock = new ManualClock(); const limiter = new Limiter('1/h', { clock }).unref(); limiter.tryAcquire()", ''],
    ["const limiter = new Limiter('20/s').unref().ref(); limiter.tryAcquire(20)", 'ended']
  ]) {
    const ended = await run(`${program}; limiter.acquire().then(() => console.log('ended'))`)
    assert.deepEqual(ended, { output, code: 0, stderr: '' }, program)
  }
})

test('a process that is ended with waits open ends', async () => {
  const ended = await run(`
    const limiter = new Limiter('1000/s burst 1')
    for (let at = 0; at < 5000; at++) limiter.acquire().catch(() => {})
    setTimeout(() => process.exit(3), 30)`)
  assert.deepEqual(ended, { output: '', code: 3, stderr: '' })
})

test('workers share one limit', async () => {
  const limiter = { limit: '1000/h', shared: 'tries' }
  const workers = Array.from({ length: 3 }, () => worker(limiter, `
    let granted = 0
    for (let at = 0; at < 2000; at++) if (limiter.tryAcquire()) granted++
    parentPort.postMessage(granted)`))
  const granted = await Promise.all(workers.map(({ posted }) => posted))
  assert.equal(granted.reduce((sum, each) => sum + each, 0), 1000)
  const own = new Limiter('1000/h', { shared: 'tries' })
  assert.equal(own.tryAcquire(), false)
  // Its name stands for its limit, until it is closed.
  assert.throws(() => new Limiter('999/h', { shared: 'tries' }), /the shared limiter "tries" has the limit/)
  own.close()
  assert.ok(new Limiter('999/h', { shared: 'tries' }).tryAcquire())
})

test('a worker waits for what another thread releases', async () => {
  const limit = { policy: 'concurrency', permits: 1 }
  const own = new Limiter(limit, { shared: 'flights' })
  await own.acquire()
  const { posted } = worker({ limit, shared: 'flights' }, `
    const grant = await limiter.acquire()
    parentPort.postMessage(grant.permits)`)
  while (own.waiting === 0) await sleep(2)
  own.release()
  assert.equal(await posted, 1)
})

test('a worker that ends leaves no waiter', async () => {
  const own = new Limiter('100/s burst 1', { shared: 'ends' })
  for (let turn = 0; turn < 5; turn++) {
    const { started, posted } = worker({ limit: '100/s burst 1', shared: 'ends' }, `
      for (let at = 0; at < 1000; at++) limiter.acquire().catch(() => {})
      parentPort.postMessage('begun')`)
    await posted
    assert.ok(own.waiting > 100)
    await started.terminate()
    assert.equal(own.waiting, 0)
  }
  // Those that stay still get theirs.
  await Promise.all([own.acquire(), own.acquire()])
})

test('without a compiled module, the error names the package of the platform', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'rategate-'))
  try {
    const loader = join(folder, 'lib', 'native.cjs')
    const own = createRequire(import.meta.url).resolve('rategate/package.json')
    await cp(join(dirname(own), 'lib', 'native.cjs'), loader)
    for (const [platform, arch, glibc, name] of [
      ['linux', 'x64', '2.41', '@rategate/linux-x64-gnu'],
      ['linux', 'arm64', undefined, '@rategate/linux-arm64-musl'],
      ['darwin', 'arm64', undefined, '@rategate/darwin-arm64'],
      ['win32', 'x64', undefined, '@rategate/win32-x64-msvc']
    ]) {
      const ended = await run(`
        import { createRequire } from 'node:module'
        const as = ${JSON.stringify({ platform, arch })}
        for (const key in as) Object.defineProperty(process, key, { value: as[key] })
        const { report } = process
        report.getReport = () => {
          if (!report.excludeNetwork) throw new Error('the report looks up names')
          return { header: { glibcVersionRuntime: ${JSON.stringify(glibc)} } }
        }
        try {
          createRequire(import.meta.url)(${JSON.stringify(loader)})
        } catch (error) {
          console.log(report.excludeNetwork === true, error.message)
        }`)
      assert.match(ended.output, new RegExp(`^false .*the package ${name}\\.`), JSON.stringify(ended))
    }
  } finally {
    await rm(folder, { recursive: true })
  }
})
