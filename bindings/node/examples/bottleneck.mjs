// Two jobs at a time, 20 ms apart, by the names of Bottleneck. A failed one is tried again.
import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'

import Bottleneck from 'rategate/compat/bottleneck'

const limiter = new Bottleneck({ maxConcurrent: 2, minTime: 20 })
limiter.on('failed', (error, { retryCount }) => retryCount === 0 && error.message === 'try again' ? 5 : undefined)
let [running, most, attempts] = [0, 0, 0]
const job = async (name) => {
  most = Math.max(most, ++running)
  await sleep(30)
  running--
  if (name === 'c' && attempts++ === 0) throw new Error('try again')
  return name
}
const names = await Promise.all(['a', 'b', 'c', 'd'].map((name) => limiter.schedule(job, name)))
console.log(names, `at most ${most} at a time`, limiter.counts())
assert.deepEqual([names, most, attempts], [['a', 'b', 'c', 'd'], 2, 2])
