// What the clients have in common.
import type { Limiter, Span } from '../index.cjs'

export interface PaceOptions {
  /** Each request takes a permit of it, in the order of the calls. */
  limiter?: Limiter
  /** The longest that a server can make requests wait: an hour without it. Jitter is added. */
  maxHold?: Span
  /** A request that would wait longer rejects at once with `TooLong`. */
  maxWait?: Span
  /** The most requests that wait for one server, 65 536 without it; one more rejects with `Full`. */
  maxWaiting?: number
  /** A hold ends later by a random part of it: of a fifth of the hold, at most 30 s, without it. */
  jitter?: Span
  /** Is called when a server asks for a hold, with its milliseconds. */
  onHold?: (milliseconds: number, server: string) => void
}
