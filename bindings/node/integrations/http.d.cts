// What the middlewares for servers have in common.
import type { IncomingMessage, ServerResponse } from 'node:http'

import type { Key, Keyed, Limit, Limiter, ManualClock, Shared, Span } from '../index.cjs'

/** A request as Node has it: of HTTP/2, the one that is compatible with it. */
export type NodeRequest = Pick<IncomingMessage, 'headers' | 'rawHeaders' | 'socket' | 'method' | 'url'>
/** A response as Node has it: of HTTP/2, the one that is compatible with it, which is neither `closed` nor `destroyed`. */
export type NodeResponse = Pick<ServerResponse, 'statusCode' | 'writableFinished'> & Partial<Pick<ServerResponse, 'destroyed' | 'closed'>>

/** Names the client of a request; `undefined` if the request does not tell. */
export type KeySource<C> = (request: NodeRequest, context: C) => Key | symbol | null | undefined

/** The bits of an address that tell clients apart: 32 of IPv4 and 64 of IPv6 without them. */
export interface AddressGroups {
  groupV4?: number
  groupV6?: number
}

export interface ClientOptions extends AddressGroups {
  /**
   * The number of proxies in front of the server, which clients cannot bypass, or the networks of
   * proxies such as `"10.0.0.0/8"`.
   */
  trust: number | readonly string[]
  /** The header that they write: `"x-forwarded-for"`, `"forwarded"`, or one like the former. */
  field?: string
}

/** Returns a source of keys by the address of the peer, which behind a proxy is the proxy. */
export function peer (options?: AddressGroups): KeySource<unknown>
/** Returns a source of keys by the client's address, as trusted proxies report it. */
export function client (options: ClientOptions): KeySource<unknown>
/** Returns a source of keys by a header. A client that no one has checked chooses its value. */
export function header (name: string): KeySource<unknown>
/** Names a request by its method. */
export function method (request: NodeRequest): string
/** Names a request by its path as sent, without the query. */
export function path (request: NodeRequest): string

export type Reason =
  | 'over-limit'
  | 'too-costly'
  | 'no-key'
  | 'ambiguous-key'
  | 'too-many-keys'
  | 'too-many-waiting'
  | 'closed'
  | 'undecided'

/** A refusal of a request. As JSON it is a problem (RFC 9457). */
export interface Refusal {
  readonly reason: Reason
  readonly status: number
  /** A sentence for people. */
  readonly detail: string
  /** Milliseconds until the same request passes; `null` where time does not help. */
  readonly retryAfter: number | null
  readonly retryAfterNs: bigint | null
  /** The name of the policy, if the responses report one. */
  readonly policy: string | undefined
  problem (): Record<string, string | number | string[]>
  toJSON (): Record<string, string | number | string[]>
}

/** What responses report about the limit. The numbers are the limit's own without them. */
export interface HeaderOptions {
  name?: string
  quota?: number
  window?: Span
  unit?: 'requests' | 'content-bytes' | 'concurrent-requests' | 'tokens' | 'input-tokens' | 'output-tokens'
  /**
   * `"current"` is `RateLimit-Policy` and `RateLimit`, `"legacy"` `X-RateLimit-Limit`, `-Remaining`
   * and `-Reset`, in seconds from now.
   */
  dialects?: readonly ('current' | 'legacy')[]
}

/** `C` is what the framework's own functions get, `A` the rest of the arguments of `answer`. */
export interface RateLimitOptions<C, A extends unknown[]> {
  /** The source of the keys, or several to be joined. The peer's address without it. */
  key?: KeySource<C> | readonly KeySource<C>[]
  /**
   * Requests without a key share one limit, are refused with a 400, or pass unlimited. Without it
   * they share one, and those that name their client more than once are refused.
   */
  missing?: 'share' | 'refuse' | 'pass'
  /** The permits of a request: 1 without it. One that costs 0 passes uncounted. */
  cost?: (request: NodeRequest, context: C) => number
  /** Requests over the limit wait for so long, in the order of their arrival at this process. */
  waitWithin?: Span
  /** The permits return if a response is such, as that of a log-in that succeeded. */
  refundWhen?: (response: NodeResponse) => boolean
  /** `false` for none. */
  headers?: HeaderOptions | false
  /** Responds to a refused request. The status and the fields are set. */
  answer?: (refusal: Refusal, ...args: A) => unknown
  /** Is called with each refusal. */
  onRefused?: (refusal: Refusal, request: NodeRequest) => void
  /** Of the table that is made of a limit: see `KeyedOptions`. */
  clock?: ManualClock
  maxBytes?: number
  maxKeys?: number
  whenFull?: 'share' | 'refuse' | 'admit'
}

/**
 * A limit for each key, in a table that is made of it, in a given one, or of all processes with the
 * same store; or one for all.
 */
export type Limited = Limit | Keyed | Limiter | Shared

export interface Handles {
  /** The limit that decides, to look at or to change. */
  readonly limiter: Keyed | Limiter | Shared
  /** The requests so far: those that passed, and those refused by reason. */
  readonly counts: Readonly<Record<'passed' | Reason, number>>
}
