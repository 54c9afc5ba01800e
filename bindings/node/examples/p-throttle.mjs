// Three calls in any 100 ms, by the names of p-throttle.
import assert from 'node:assert/strict'

import pThrottle from 'rategate/compat/p-throttle'

const throttle = pThrottle({ limit: 3, interval: 100 })
const starts = []
const throttled = throttle(async (call) => starts.push([call, performance.now()]))
await Promise.all([1, 2, 3, 4, 5, 6, 7].map((call) => throttled(call)))
console.log(starts.map(([call, at]) => `${call} at ${Math.round(at - starts[0][1])} ms`))
assert.deepEqual(starts.map(([call]) => call), [1, 2, 3, 4, 5, 6, 7])
