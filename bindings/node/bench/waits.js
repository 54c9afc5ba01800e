// Waits of many callers for one rate: how late each goes on, how many too early, and how long all
// of them take.
import Bottleneck from 'bottleneck'
import { RateLimiter } from 'limiter'
import PQueue from 'p-queue'
import pThrottle from 'p-throttle'
import { Limiter } from 'rategate'

/** Each returns a function that resolves when the call may start, at a rate for each second. */
const CONTENDERS = {
  rategate: (rate, burst) => {
    const limiter = new Limiter(`${rate}/s burst ${burst}`)
    return () => limiter.acquire()
  },
  'rategate, schedule': (rate) => {
    const limiter = new Limiter({ policy: 'two-timeline', rate: `${rate}/s`, mode: 'average' })
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

async function play (make, rate, burst, calls) {
  // A schedule begins as it is made, which takes up to a millisecond in a process that has just begun.
  const made = performance.now()
  const start = make(rate, burst)
  const begin = performance.now()
  const starts = []
  const order = []
  await Promise.all(Array.from({ length: calls }, async (_, at) => {
    await start()
    starts.push(performance.now())
    order.push(at)
  }))
  const gap = 1000 / rate
  // Behind a bucket that is full as they come.
  const late = starts.map((now, at) => now - begin - Math.max(0, at - burst + 1) * gap)
  const sorted = [...late].sort((a, b) => a - b)
  return {
    p50: sorted[calls >> 1],
    p99: sorted[Math.floor(calls * 0.99)],
    early: late.filter((each) => each < made - begin).length,
    inversions: order.filter((each, at) => at > 0 && each < order[at - 1]).length,
    total: (starts.at(-1) - begin) / ((calls - burst) * gap)
  }
}

export async function waits () {
  for (const [rate, burst, calls, short] of [[500, 1, 1000, 1000], [500, 5, 1000], [10_000, 1, 10_000, 1000], [10_000, 100, 10_000]]) {
    console.log(`\n${calls} waits at ${rate}/s burst ${burst}: late p50 / p99, too early, out of order, time to ideal`)
    for (const [name, make] of Object.entries(CONTENDERS)) {
      // The slow ones would take minutes.
      const own = name.startsWith('rategate') ? calls : short
      // They know no bursts.
      if (burst > 1 && name !== 'rategate') continue
      const { p50, p99, early, inversions, total } = await play(make, rate, burst, own)
      const lateness = `${(p50 * 1000).toFixed(0)} us / ${(p99 * 1000).toFixed(0)} us`
      console.log(`  ${name.padEnd(20)}${lateness.padStart(22)}${String(early).padStart(7)}${String(inversions).padStart(5)}  ${total.toFixed(3)}x  (${own})`)
    }
  }
}
