import type { PaceOptions } from './pace.cjs'

export type { PaceOptions }

/**
 * Returns a fetch that waits for its limiter, and as long as the server asks by `Retry-After`,
 * `RateLimit` or `x-ratelimit-*`: never shorter. The `signal` of a request ends its wait. Holds
 * are of one origin each.
 */
export function pace (fetch?: typeof globalThis.fetch, options?: PaceOptions): typeof globalThis.fetch
