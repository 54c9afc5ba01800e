// What the clients have in common.
import type { Limiter, Span } from '../index.cjs'

export interface PaceOptions {
  /**
   * Each request takes a permit of it, in the order of the calls. An adaptive limiter follows how
   * requests end: a 429, 503 or 529 counts as dropped, and so does a 403 that says how long to hold;
   * any other response as served, and none as ignored. After a 429 that says nothing, such a limiter
   * cuts its rate, and there is no hold.
   */
  limiter?: Limiter
  /** The longest that a server can make requests wait: an hour without it. Jitter is added. */
  maxHold?: Span
  /** A request that would wait longer rejects at once with `TooLong`. */
  maxWait?: Span
  /**
   * The most requests that wait for one server, 65 536 without it and at least 1; one more rejects
   * with `Full`.
   */
  maxWaiting?: number
  /**
   * A hold ends later by a random part of it: of a fifth of the hold, at most 30 s, without it.
   * Requests that wait for the end then start evenly over as long; together, without it.
   */
  jitter?: Span
  /**
   * What a server says that remains is spread over the time until its reset. With `false` it is
   * sent as fast as requests come, and then they hold.
   */
  spread?: boolean
  /** Is called when a hold begins or grows, with its milliseconds from now on. */
  onHold?: (milliseconds: number, server: string) => void
}
