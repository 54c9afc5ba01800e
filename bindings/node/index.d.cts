/** A length of time: milliseconds, or text with a unit such as `"1.5s"`, `"200ms"` or `"1min"`. */
export type Span = number | string

/** A value of a policy: its tables are objects. */
export type PolicyValue = string | number | boolean | undefined | { [key: string]: PolicyValue }

/** A policy by its name, with its keys: those of the tables `[limit]` of scenario files. */
export interface Policy {
  policy:
    | 'gcra'
    | 'sliding-log'
    | 'fixed-window'
    | 'pacer'
    | 'two-timeline'
    | 'warm-up'
    | 'backfill-pool'
    | 'concurrency'
    | 'commit-log'
    | 'adaptive'
    | 'adaptive-rate'
  /** A rate such as `"10/s"`. */
  rate?: string
  burst?: number
  permits?: number
  period?: Span
  guard?: Span
  resolution?: Span
  anchor?: string
  [key: string]: PolicyValue
}

/**
 * One limit: text such as `"10/s burst 5"`, `"100 per any minute"` or several between semicolons,
 * or a policy by its name.
 */
export type Limit = string | Policy

/** A call passes all of several limits, or takes from none. */
export type Limits = Limit | readonly Limit[]

export interface LimiterOptions {
  /** A clock that a test moves; real time without one. */
  clock?: ManualClock
  /** How a debt of charges ends: with its window (`"forgotten"`), or paid by later ones. */
  debt?: 'forgotten' | 'carried'
  /** The longest that a debt lasts; what would exceed it is forgiven. */
  maxDebt?: Span
  /** The most waiters; one more rejects with {@link Full}. */
  maxWaiting?: number
  /** Counts grants and denials under this name. */
  name?: string
  /** One limit for all worker threads of the process that write the same name and limit. */
  shared?: string
}

export interface RestoreOptions extends Omit<LimiterOptions, 'shared'> {
  /** The longest time away that counts; all of it by the wall clock without it. */
  maxDowntime?: Span
}

export interface AcquireOptions {
  /** Its abort ends the wait: the promise rejects with its reason, and those behind move up. */
  signal?: AbortSignal | undefined
  /** Rejects with {@link TooLong} at once if the start would come later. */
  timeout?: Span | undefined
}

/** A limiter. */
export class Limiter {
  constructor (limit: Limits, options?: LimiterOptions)
  /**
   * Makes a limiter that continues from what {@link Limiter.save} returned. Other numbers of the same
   * policies come into force now. A manual clock says itself how much time has passed. Throws a
   * `RangeError` for bytes that are not whole, or of other policies.
   */
  static restore (limit: Limits, saved: Uint8Array, options?: RestoreOptions): Limiter

  /** Takes permits at once, or not at all. 1 without a number. */
  tryAcquire (permits?: number): boolean
  /** Takes permits at once, or says when it could. */
  check (permits?: number): Decision
  /** Returns the wait in milliseconds, or `null` if no time helps. Takes nothing. */
  peek (permits?: number): number | null
  /** Returns the wait in nanoseconds, exactly. */
  peekNs (permits?: number): bigint | null

  /** Waits for permits, in the order of the calls, and never ends early. */
  acquire (permits?: number, options?: AcquireOptions): Promise<Grant>
  /** Waits for a permit and runs the function; of a limit on operations in flight, it ends one. */
  schedule<A extends unknown[], R> (run: (...args: A) => R, ...args: A): Promise<Awaited<R>>
  /** Returns a function that waits for its permits before each call. */
  wrap<A extends unknown[], R, T> (
    run: (this: T, ...args: A) => R,
    options?: { permits?: (...args: A) => number; signal?: AbortSignal }
  ): (this: T, ...args: A) => Promise<Awaited<R>>
  /** Yields a grant for each permit that it waits for. */
  [Symbol.asyncIterator] (): AsyncGenerator<Grant, never, void>

  /** Takes permits for the first instant that is free, behind all waiters. The caller waits. */
  reserve (permits?: number, options?: { timeout?: Span | undefined }): Reservation
  /**
   * Holds an estimate until its true cost is known, for `ttl` at most. Throws {@link TooLong} if it
   * does not fit now, and {@link Never} if no time helps.
   */
  tryHold (permits: number, ttl: Span): Hold
  /** Waits in line until an estimate fits, and holds it. Options and errors are those of `acquire`. */
  hold (permits: number, ttl: Span, options?: { signal?: AbortSignal | undefined, timeout?: Span | undefined }): Promise<Hold>
  /** Takes permits in batches that are counted here. It raises the limit's bound by one batch. */
  local (batch?: number): Local

  /** Counts what has been used already, whether it fits or not. */
  charge (permits?: number): Charged
  /** Ends operations in flight. Returns `false` if the limit counts none. */
  release (permits?: number): boolean
  /** Ends the operations of a grant, whose outcome an adaptive limit follows. Returns as `release`. */
  releaseWithOutcome (grant: Grant, outcome: Outcome): boolean
  /** Adds permits to a pool. Returns `false` if there is none. */
  refill (permits?: number): boolean
  /** Forgets all grants and promises. Returns `true` if that changes anything. */
  reset (): boolean
  /**
   * Returns the limit's numbers and its state as bytes. What is promised or held counts as taken;
   * waiters are not saved, and operations in flight have ended when it is restored.
   */
  save (): Uint8Array
  /** Bounds the wait queue, for waiters that come from now on. */
  boundQueue (bounds: { waiters?: number; permits?: number; whenFull?: 'refuse' | 'evict-newest' }): void
  /**
   * Replaces the limit; waiters stay. A bucket keeps what it has left, and another policy begins as used
   * up as the one before it. Operations in flight stay a limit of their own.
   */
  reconfigure (limit: Limits): void
  /** Ends all waits with {@link Closed}, and grants nothing any more. */
  close (): void

  /** Lets waits of this limiter keep the process alive, which is the default. */
  ref (): this
  /** Lets the process end while this limiter's waits are open. */
  unref (): this

  /** The most permits that a try could take now; 0 once it is closed. */
  readonly remaining: number
  /** The most operations in flight that the limit allows now; `null` if it counts none, or is closed. */
  readonly maxInFlight: number | null
  /** The number of waiters. */
  readonly waiting: number
  readonly closed: boolean
  /** The time since the origin of the limiter's clock, in nanoseconds. */
  readonly nowNs: bigint
  /** Nanoseconds are text. */
  toJSON (): object
}

/** The decision about a try: `granted` tells which. */
export type Decision = Granted | Denied

/** The decision about a try that passed. */
export interface Granted extends DecisionNumbers {
  readonly granted: true
  readonly grant: Grant
  readonly retryAfter: null
  readonly retryAfterNs: null
}

/** The decision about a try that took nothing. */
export interface Denied extends DecisionNumbers {
  readonly granted: false
  readonly grant: null
  /** Milliseconds until the same try passes; `null` if time does not help. */
  readonly retryAfter: number | null
  readonly retryAfterNs: bigint | null
}

/** What is known of the limit after a try. As JSON, nanoseconds are text. */
export interface DecisionNumbers {
  /** The permits that a try could take now. */
  readonly remaining: number
  /** Milliseconds until the limit has fully recovered; `null` if it never does by time alone. */
  readonly resetAfter: number | null
  readonly resetAfterNs: bigint | null
  toJSON (): object
}

/** Permits that are the caller's. Instants are of the limiter's clock. */
export class Grant {
  private constructor ()
  readonly permits: number
  /** From when the operation should have started until it passed. */
  readonly waitNs: bigint
  readonly releasedAtNs: bigint
  readonly promisedAtNs: bigint
  readonly scheduledAtNs: bigint
  /** Nanoseconds are text. */
  toJSON (): object
}

/** A promised start. One that is neither kept nor cancelled is kept. */
export interface Reservation {
  /** When the operation may start, on the limiter's clock: compare with `limiter.nowNs`. */
  readonly promisedAtNs: bigint
  keep (): Grant
  /** Returns the permits. Returns `true` if that came before the start. */
  cancel (): boolean
}

/** An estimate that is held. It ends once; one that is collected without an end counts as used. */
export interface Hold {
  readonly permits: number
  /** When the hold ends by itself, on the limiter's clock. */
  readonly endsAtNs: bigint
  /** Ends it with what was really used. Returns what was charged if it had ended by itself. */
  commit (actual: number): Settled | Charged
  /** Ends it, all of which was used. Nothing is charged if it had ended by itself. */
  keep (): void
  /** Ends it, of which nothing was used. Returns `true` if it had not ended by itself. */
  cancel (): boolean
  /** Nanoseconds are text. */
  toJSON (): object
}

/** The correction of an estimate, in permits. */
export interface Settled {
  refunded: number
  charged: number
  forgiven: number
}

/** The result of a charge, in permits. */
export interface Charged {
  booked: number
  forgiven: number
  debt: number
}

/** How an operation has ended, as an adaptive limit counts it. */
export type Outcome = 'served' | 'dropped' | 'ignored'

/** A batch of permits that one thread has taken ahead. */
export interface Local {
  tryAcquire (permits?: number): boolean
  readonly unused: number
  /** Returns what is left of the batch to the limiter. */
  close (): void
}

/** A key; 7 and `"7"` are one. */
export type Key = string | number | bigint

export interface KeyedOptions {
  clock?: ManualClock
  /** The most keys, from 1 to 2^30; 65 536 without it. */
  maxKeys?: number
  /**
   * The most bytes of states beside the keys' slots, from 1 on; 64 MiB without it. Logs that have
   * grown take them. A key whose log cannot grow rejects with {@link Full}.
   */
  maxBytes?: number
  /** New keys in a full table share one limit, throw {@link Full}, or pass without one. */
  whenFull?: 'share' | 'refuse' | 'admit'
}

/** A limit for each key, in bounded memory. Only keys that have fully recovered are evicted. */
export class Keyed {
  constructor (limit: Limit, options?: KeyedOptions)
  tryAcquire (key: Key, permits?: number): boolean
  check (key: Key, permits?: number): Decision
  peek (key: Key, permits?: number): number | null
  remaining (key: Key): number
  /** Holds an estimate as {@link Limiter.tryHold} does. */
  tryHold (key: Key, permits: number, ttl: Span): Hold
  reset (key: Key): boolean
  /** Returns the limiter of a key, which waits. All limiters of one key are one line. */
  limiter (key: Key): Limiter
  reconfigure (limit: Limit): void
  readonly size: number
  /** The calls that found the table full. */
  readonly overflows: number
  toJSON (): object
}

export interface SharedOptions {
  /** The store decides each call (`"exact"`, the default), or processes borrow permits (`"leased"`). */
  mode?: 'exact' | 'leased'
  /** Decides while the store is gone: the default is `"deny"`; `"local"` needs `processes`. */
  whenGone?: 'deny' | 'allow' | 'local'
  /** The most processes that share the limit: each keeps that part of it while the store is gone. */
  processes?: number
  /** Limits of one name share their counts, whatever their numbers are; the limit's text without it. */
  name?: string
  /** The prefix of all keys in the store; `"rategate"` without it. */
  prefix?: string
  /** The longest that a call waits for the store; 100 ms without it. */
  budget?: Span
  /** How long permits are borrowed for; 100 ms without it. */
  lease?: Span
  /** The most permits that a process borrows at a time; 50 without it. */
  leasePermits?: number
  /** Borrows so that the limit is never exceeded, at the price of a part of it. */
  guard?: boolean
  /** Takes the store as gone until what it may have lost matters no more. */
  quarantine?: boolean
}

/** Keeps a grant that can be refunded, which costs some microseconds. */
export interface RefundableOptions {
  refundable?: boolean
}

/**
 * A limit for each key that all processes with the same store and limit keep together, in Redis 7
 * or Valkey. It connects at its first call, in the background.
 */
export class Shared {
  /** `url` is `redis://user:password@host:port/database` or `unix:/path`. */
  constructor (url: string, limit: Limits, options?: SharedOptions)
  /** Takes permits of a key (`""` without one), or not at all. */
  tryAcquire (key?: Key, permits?: number): Promise<boolean>
  /** Takes permits of a key, or says when to come again. */
  check (key?: Key, permits?: number, options?: RefundableOptions): Promise<SharedDecision>
  /** Takes permits as soon as they may start. Callers of one process and key go on in order. */
  acquire (key?: Key, permits?: number, options?: AcquireOptions & RefundableOptions): Promise<SharedGrant>
  /** Resolves to the permits that a call could take now, as far as the store knows. */
  remaining (key?: Key): Promise<number | null>
  /** Brings back permits of a grant that had no effect, in the background. */
  refund (key: Key, grant: SharedGrant, permits?: number): void
  /**
   * Resolves once the store has replied. `timeout` is the longest that it waits, 5 s without it: it
   * rejects with {@link Unavailable} then, and at once where only an operator can help.
   */
  ready (timeout?: Span): Promise<void>
  /** Returns the number of callers of this process that wait for a key. */
  waiting (key?: Key): number
  /**
   * The store as this process has found it: `"healthy"` until five calls in a row fail, also
   * before the first. {@link Shared.ready} changes nothing of it.
   */
  readonly status: 'healthy' | 'quarantined' | 'unavailable'
  /** The store's latest failure. */
  readonly lastFailure: string | null
  /** The calls of this process, by who decided them. */
  readonly counts: Readonly<Record<'store' | 'lease' | 'fallback', { granted: number; denied: number }>>
  toJSON (): object
}

/** The decision of a shared limit. */
export class SharedDecision {
  private constructor ()
  readonly granted: boolean
  readonly grant: SharedGrant | null
  /** The permits that one more call could take, as far as is known. */
  readonly remaining: number | null
  /** Of a denial, milliseconds until the same call passes; while the store is gone, until it is asked. */
  readonly retryAfter: number | null
  readonly retryAfterNs: bigint | null
  readonly by: 'store' | 'lease' | 'fallback' | 'none'
}

/** Permits that a shared limit has granted. */
export class SharedGrant {
  private constructor ()
  readonly permits: number
  readonly remaining: number | null
}

export interface OpenLoopOptions {
  /** A clock that a test moves; real time without one. */
  clock?: ManualClock
  /** `[0, 3]` is the first of three parts, which together are exactly the load. */
  part?: readonly [part: number, parts: number]
}

/**
 * A load, such as `"ramp:0/s>100/s@10s then constant:100/s@1min"`, whose operations are released
 * when they are due, however long those before take. It begins when the loop is made. Several
 * `for await` share a loop: each operation goes to one of them.
 */
export class OpenLoop {
  constructor (load: string, options?: OpenLoopOptions)
  /** Waits for the next operation. Done at the end of the load. An abort leaves it to the next call. */
  next (options?: { signal?: AbortSignal | undefined }): Promise<IteratorResult<Release, undefined>>
  [Symbol.asyncIterator] (): this
  /** Ends all waits: no operation is released any more. */
  close (): void
  /** Milliseconds since the start of the load. */
  readonly now: number
  readonly nowNs: bigint
}

/** An operation that may start now. Times are in milliseconds since the start of the load. */
export class Release {
  private constructor ()
  /** The number of the operation in the load, counted from 0. */
  readonly number: number
  /** When it was due: a response time counts from here. */
  readonly scheduledAt: number
  readonly scheduledAtNs: bigint
  /** When its caller really went on. */
  readonly releasedAt: number
  readonly releasedAtNs: bigint
  /** How late it is. */
  readonly wait: number
  readonly waitNs: bigint
  /** Nanoseconds are text. */
  toJSON (): object
}

/** A clock that stands still until it is moved. */
export class ManualClock {
  /** Milliseconds since its origin. */
  readonly now: number
  readonly nowNs: bigint
  advance (time: Span): void
  /**
   * Moves to the next instant at which the limiter has to look, and returns it; `null` without waits. Limiters also
   * look before a start, and after a caller that was due, so that a wait may take several steps.
   */
  step (): number | null
  /** Lets waits that are over end, and their callers go on. */
  settle (): Promise<void>
}

/** An error of a limit, of whose classes its `code` tells which. */
export type AnyRateLimitError = TooLong | Full | Closed | Never | ExceedsCapacity | Unavailable

/** A call that a limit did not let pass. */
export class RateLimitError extends Error {
  protected constructor ()
  /** Each is of one of the classes, so that after `instanceof` a `switch` on `code` tells them apart. */
  static [Symbol.hasInstance] (value: unknown): value is AnyRateLimitError
  /** Nanoseconds are text. */
  toJSON (): object
  readonly code: AnyRateLimitError['code']
}

/** The start lies past the timeout. Nothing was taken; later calls may pass. */
export class TooLong extends RateLimitError {
  private constructor ()
  static [Symbol.hasInstance] (value: unknown): value is TooLong
  readonly code: 'TOO_LONG'
  /** The wait, where it is known. */
  readonly waitNs: bigint | null
  /** Milliseconds until the same call would be accepted, where it is known. */
  readonly retryAfter: number | null
  readonly retryAfterNs: bigint | null
}

/**
 * The store of a shared limit is gone, and `whenGone` is `"deny"`, or the part of `"local"` does not
 * begin within the timeout. The message says why.
 */
export class Unavailable extends RateLimitError {
  private constructor ()
  static [Symbol.hasInstance] (value: unknown): value is Unavailable
  readonly code: 'UNAVAILABLE'
  /** Milliseconds until a call may go to the store again, where it is known. */
  readonly retryAfter: number | null
  readonly retryAfterNs: bigint | null
}

/** The wait queue, or the table of keys, is full. */
export class Full extends RateLimitError {
  private constructor ()
  static [Symbol.hasInstance] (value: unknown): value is Full
  readonly code: 'FULL'
}

/** The limiter has been closed. */
export class Closed extends RateLimitError {
  private constructor ()
  static [Symbol.hasInstance] (value: unknown): value is Closed
  readonly code: 'CLOSED'
}

/** No time and no retry makes this call pass. */
export class Never extends RateLimitError {
  protected constructor ()
  static [Symbol.hasInstance] (value: unknown): value is Never
  readonly code: 'NEVER' | 'EXCEEDS_CAPACITY'
}

/** More permits than could ever pass together. */
export class ExceedsCapacity extends Never {
  private constructor ()
  static [Symbol.hasInstance] (value: unknown): value is ExceedsCapacity
  readonly code: 'EXCEEDS_CAPACITY'
}
