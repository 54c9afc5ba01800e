// Waits of many callers for one rate: how late each goes on, how many too early, and how long all
// of them take.
import Bottleneck from 'bottleneck'
import { RateLimiter } from 'limiter'
import PQueue from 'p-queue'
import pThrottle from 'p-throttle'
import { Limiter } from 'rategate'

/** Each returns a function that resolves when the call may start, at a rate for each second. */
const CONTENDERS = {
  rategate: (rate) => {
    const limiter = new Limiter(`${rate}/s burst 1`)
    return () => limiter.acquire()
  },
  'p-throttle': (rate) => {
    const { limit, interval } = perInterval(rate)
    return pThrottle({ limit, interval })(async () => {})
  },
  'p-queue': (rate) => {
    const { limit, interval } = perInterval(rate)
    const queue = new PQueue({ intervalCap: limit, interval })
    return () => queue.add(async () => {})
  },
  limiter: (rate) => {
    const limiter = new RateLimiter({ tokensPerInterval: rate, interval: 'second' })
    // It has a bucket of a second's permits.
    limiter.tryRemoveTokens(rate)
    return () => limiter.removeTokens(1)
  },
  bottleneck: (rate) => {
    const queue = new Bottleneck({ minTime: 1000 / rate, maxConcurrent: null })
    return () => queue.schedule(async () => {})
  }
}

/** Their intervals are whole milliseconds. */
function perInterval (rate) {
  return rate <= 1000 ? { limit: 1, interval: 1000 / rate } : { limit: rate / 1000, interval: 1 }
}

async function play (make, rate, calls) {
  const start = make(rate)
  const starts = []
  const begin = performance.now()
  const order = []
  await Promise.all(Array.from({ length: calls }, async (_, at) => {
    await start()
    starts.push(performance.now())
    order.push(at)
  }))
  const gap = 1000 / rate
  // From the first start: a limiter that begins with a full or an empty bucket is not blamed.
  const late = starts.map((now, at) => now - starts[0] - at * gap)
  const sorted = [...late].sort((a, b) => a - b)
  return {
    p50: sorted[calls >> 1],
    p99: sorted[Math.floor(calls * 0.99)],
    // Nearer than the gap, on the whole, is too early; the clock counts to a microsecond or so.
    early: late.filter((each) => each < -0.01).length,
    inversions: order.filter((each, at) => at > 0 && each < order[at - 1]).length,
    total: (starts.at(-1) - begin) / ((calls - 1) * gap)
  }
}

export async function waits () {
  for (const [rate, calls, short] of [[500, 1000, 1000], [10_000, 10_000, 1000]]) {
    console.log(`\n${calls} waits at ${rate}/s: late p50 / p99, too early, out of order, time to ideal`)
    for (const [name, make] of Object.entries(CONTENDERS)) {
      // The slow ones would take minutes.
      const own = name === 'rategate' ? calls : short
      const { p50, p99, early, inversions, total } = await play(make, rate, own)
      const lateness = `${(p50 * 1000).toFixed(0)} us / ${(p99 * 1000).toFixed(0)} us`
      console.log(`  ${name.padEnd(14)}${lateness.padStart(26)}${String(early).padStart(7)}${String(inversions).padStart(5)}  ${total.toFixed(3)}x  (${own})`)
    }
  }
}
