import type { IncomingMessage, ServerResponse } from 'node:http'

import type { Handles, Limited, RateLimitOptions } from './http.cjs'

export * from './http.cjs'

/** What is used of the requests and replies of Fastify. */
export interface FastifyRequestLike { raw: IncomingMessage }
export interface FastifyReplyLike { raw: ServerResponse }

/**
 * Returns a plugin that limits requests, as the middleware for Express does. It is for all routes
 * of the instance that registers it; its `onRequest` is a hook for single routes.
 */
export function rateLimit<Q extends FastifyRequestLike = any, R extends FastifyReplyLike = any> (
  limit: Limited,
  options?: RateLimitOptions<Q, [request: Q, reply: R]>
): ((instance: any, options: Record<string, any>, done: (error?: Error) => void) => void) & Handles & {
  readonly onRequest: (request: Q, reply: R) => Promise<any>
}
