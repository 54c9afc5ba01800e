import type { IncomingMessage, ServerResponse } from 'node:http'

import type { Handles, Limited, RateLimitOptions } from './http.cjs'

export * from './http.cjs'

/** What is used of the context of Koa. */
export interface KoaContext {
  req: IncomingMessage
  res: ServerResponse
  status: number
  body: unknown
  set (name: string, value: string): void
  response: { get (name: string): string | string[] }
}

/** Returns a middleware that limits requests, as that for Express does. */
export function rateLimit<C extends KoaContext = KoaContext> (
  limit: Limited,
  options?: RateLimitOptions<C, [context: C]>
): ((context: C, next: () => Promise<any>) => Promise<unknown>) & Handles
