import type { IncomingMessage, ServerResponse } from 'node:http'

import type { Handles, Limited, RateLimitOptions } from './http.cjs'

export * from './http.cjs'

/**
 * Returns a middleware that limits requests: 429 with the exact `Retry-After`, and `RateLimit`
 * fields on all responses.
 */
export function rateLimit<Q extends IncomingMessage = IncomingMessage, S extends ServerResponse = ServerResponse> (
  limit: Limited,
  options?: RateLimitOptions<Q, [request: Q, response: S, next: (error?: unknown) => void]>
): ((request: Q, response: S, next: (error?: any) => void) => void) & Handles
