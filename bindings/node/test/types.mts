// Compiled, and never run: the types of a module of the new kind.
import { type AnyRateLimitError, Closed, ExceedsCapacity, Full, Grant, Hold, Keyed, Limiter, ManualClock, Never, OpenLoop, RateLimitError, Release, Shared, SharedDecision, SharedGrant, TooLong, Unavailable } from 'rategate'
// Their declarations are checked with the frameworks absent.
import 'rategate/express'
import 'rategate/fastify'
import 'rategate/fetch'
import 'rategate/hono'
import 'rategate/koa'
import 'rategate/undici'

const clock = new ManualClock()
const limiter = new Limiter(['10/s burst 5', { policy: 'fixed-window', permits: 5, period: '1min' }], { clock, maxWaiting: 3 })
const passed: boolean = limiter.tryAcquire(2)
const wait: number | null = limiter.peek()
const grant: Grant = await limiter.acquire(1, { signal: AbortSignal.timeout(5), timeout: '2s' })
const committed = limiter.tryHold(80, '1min').commit(3)
const held: Hold = await limiter.hold(3, '1min', { signal: AbortSignal.timeout(5), timeout: '2s' })
const cancelled: boolean = held.cancel()
const used: number = 'booked' in committed ? committed.booked : committed.charged
limiter.releaseWithOutcome(grant, 'served')
const inFlight: number | null = limiter.maxInFlight
const restored: Limiter = Limiter.restore('10/s burst 5', limiter.save(), { clock, maxDowntime: '1min', maxWaiting: 3 })
restored.close()
const scheduled: string = await limiter.schedule(async (text: string, times: number) => text.repeat(times), 'a', 3)
const wrapped: (url: string) => Promise<number> = limiter.wrap((url: string) => url.length, { permits: (url) => url.length })
for await (const each of limiter) console.log(each.permits)

const keyed = new Keyed('5/s', { maxKeys: 10, maxBytes: 2 ** 20, whenFull: 'admit' })
const decision = keyed.check('a')
const retry: bigint | null = decision.retryAfterNs
const permits: number = decision.granted ? decision.grant.permits : decision.retryAfter ?? 0
clock.advance('1h')
console.log(passed, wait, cancelled, grant.permits, scheduled, wrapped, retry, used, inFlight, keyed.limiter(7n).unref().waiting, permits)

const shared = new Shared('redis://127.0.0.1', '10/s', { mode: 'leased', guard: true, lease: '50ms', whenGone: 'allow' })
const together: SharedDecision = await shared.check('a', 2, { refundable: true })
const ours: SharedGrant = await shared.acquire(7n, 1, { signal: AbortSignal.timeout(5), refundable: true })
shared.refund(7n, ours)
console.log(together.by === 'lease', await shared.tryAcquire(), await shared.remaining('a'), shared.counts.store.granted)
// @ts-expect-error: there is no such mode
new Shared('redis://127.0.0.1', '10/s', { mode: 'fast' })

const load = new OpenLoop('constant:100/s@1s', { clock, part: [0, 2] })
for await (const release of load) console.log(release.number, release.wait, load.now - release.scheduledAt)
const next: IteratorResult<Release, undefined> = await load.next({ signal: AbortSignal.timeout(5) })
if (!next.done) console.log(next.value.waitNs, load.nowNs)
// @ts-expect-error: a part is two numbers
new OpenLoop('constant:100/s', { part: [1] })
load.close()

try {
  await limiter.acquire()
} catch (error) {
  if (error instanceof TooLong || error instanceof Unavailable) console.log(error.retryAfter)
  else if (error instanceof RateLimitError) console.log(error.code, [Full, Closed, Never, ExceedsCapacity].some((kind) => error instanceof kind))
}

/** Each `code` tells the class, and there is no other. */
function told (error: unknown): bigint | string | null {
  if (!(error instanceof RateLimitError)) return null
  const any: AnyRateLimitError = error
  const { name, message } = any
  // @ts-expect-error: not every error has it
  error.retryAfterNs
  switch (error.code) {
    case 'TOO_LONG':
      return error.waitNs ?? error.retryAfterNs
    case 'UNAVAILABLE':
      // @ts-expect-error: a store that is gone has no start
      error.waitNs
      return error.retryAfterNs
    case 'FULL': {
      const full: Full = error
      // @ts-expect-error: the code tells that it is full
      const closed: Closed = error
      return full.message + closed.message
    }
    case 'CLOSED':
      return (error satisfies Closed).message
    case 'NEVER':
    case 'EXCEEDS_CAPACITY':
      return (error satisfies Never).message
    default: {
      const none: never = error
      return `${none} ${name} ${message}`
    }
  }
}
console.log(told(new Error('another')))
// @ts-expect-error: there is no such code
told(null) ?? (new Set<AnyRateLimitError['code']>()).has('FUL')
const long = (error: unknown) => error instanceof TooLong ? error.waitNs : error instanceof ExceedsCapacity ? error.code satisfies 'EXCEEDS_CAPACITY' : null
console.log(long(null))

// @ts-expect-error: a limit is needed
new Limiter()
// @ts-expect-error: there is no such option
new Limiter('1/s', { maxWait: 3 })
// @ts-expect-error: only limiters make grants
new Grant()
// @ts-expect-error: there is no such outcome
limiter.releaseWithOutcome(grant, 'lost')
// @ts-expect-error: permits are numbers
limiter.tryAcquire('1')
// @ts-expect-error: its arguments are those of the function
await limiter.schedule((text: string) => text, 1)
