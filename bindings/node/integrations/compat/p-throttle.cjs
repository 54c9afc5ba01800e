// The names of p-throttle 8 with the semantics of rategate. The README lists the differences.
'use strict'

const { functionOf, optionsOf, permitsOf, signalOf } = require('../../lib/arguments.cjs')
const { Limiter } = require('../../lib/limiter.cjs')
const { show } = require('../../lib/show.cjs')

const OPTIONS = ['limit', 'interval', 'strict', 'signal', 'onDelay', 'weight']

function pThrottle (options) {
  const { limit, interval, signal, onDelay, weight } = optionsOf(options, OPTIONS)
  for (const [name, value] of [['limit', limit], ['interval', interval]]) {
    if (!Number.isFinite(value)) throw new TypeError(`${name} is ${show(value)}; must be a finite number`)
  }
  if (onDelay !== undefined) functionOf(onDelay, 'onDelay')
  if (weight !== undefined) functionOf(weight, 'weight')
  signalOf(signal)?.throwIfAborted()
  if (!Number.isInteger(limit) || limit < 1) throw new RangeError(`limit is ${limit}; must be a whole number from 1`)
  if (interval < 0) throw new RangeError(`interval is ${interval}; must be milliseconds, not negative`)
  // Within no time every call passes.
  const limiter = interval === 0 ? undefined : new Limiter({ policy: 'sliding-log', permits: limit, period: interval })

  return (run) => {
    functionOf(run, 'the function to throttle')
    const throttled = async function (...args) {
      if (!throttled.isEnabled || limiter === undefined) return run.apply(this, args)
      signal?.throwIfAborted()
      const permits = permitsOf(weight?.(...args))
      if (!limiter.tryAcquire(permits)) {
        const wait = limiter.acquire(permits, { signal })
        onDelay?.(...args)
        await wait
      }
      return run.apply(this, args)
    }
    throttled.isEnabled = true
    return Object.defineProperty(throttled, 'queueSize', { get: () => limiter?.waiting ?? 0 })
  }
}

module.exports = pThrottle
