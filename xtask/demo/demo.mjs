// Shows promises of the package for Node by one line each: see demo.py.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { Worker } from 'node:worker_threads'

import { Limiter } from 'rategate'

const show = (promise, seen) => console.log(`${`Node ${process.versions.node}: ${promise}`.padEnd(62)} ${seen}`)

{
  const limiter = new Limiter('1/h')
  limiter.tryAcquire()
  const abort = new AbortController()
  const waits = Array.from({ length: 1000 }, () => limiter.acquire(1, { signal: abort.signal }))
  abort.abort()
  const ends = await Promise.allSettled(waits)
  assert.ok(ends.every(({ reason }) => reason?.name === 'AbortError') && limiter.waiting === 0)
  show('an abort leaves the line', `${ends.length} of 1000 ended, ${limiter.waiting} wait`)
}
{
  const program = `
    const { parentPort } = require('node:worker_threads')
    const { Limiter } = require('rategate')
    const limiter = new Limiter('500/s burst 1', { shared: 'demo' })
    const starts = []
    ;(async () => {
      for (let at = 0; at < 100; at++) starts.push((await limiter.acquire()).releasedAtNs)
      parentPort.postMessage(starts)
    })()`
  const posted = Array.from({ length: 4 }, () => new Promise((resolve, reject) => {
    new Worker(program, { eval: true }).once('message', resolve).once('error', reject)
  }))
  const starts = (await Promise.all(posted)).flat().sort((a, b) => (a < b ? -1 : 1))
  const gaps = starts.slice(1).map((at, before) => at - starts[before])
  assert.ok(starts.length === 400 && gaps.every((gap) => gap >= 2_000_000n))
  show('four workers on one limit of 500/s', '400 starts, none closer than 2 ms')
}
{
  const program = `
    const { Limiter } = require('rategate')
    const limiter = new Limiter('1/h').unref()
    limiter.tryAcquire()
    limiter.acquire()`
  const begin = performance.now()
  execFileSync(process.execPath, ['-e', program], { timeout: 30_000 })
  show('a limiter without a reference lets the process end', `${(performance.now() - begin).toFixed(0)} ms`)
}
