import type { Handles, Limited, RateLimitOptions } from './http.cjs'

export * from './http.cjs'

/** What is used of the context of Hono. */
export interface HonoContext {
  env: any
  res: Response
  header (name: string, value?: string): void
}

/** Returns a middleware that limits requests, as that for Express does. */
export function rateLimit<C extends HonoContext = any> (
  limit: Limited,
  options?: RateLimitOptions<C, [context: C]>
): ((context: C, next: () => Promise<void>) => Promise<Response | void>) & Handles
