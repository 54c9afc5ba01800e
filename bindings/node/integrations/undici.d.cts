import type { PaceOptions } from './pace.cjs'

export type { PaceOptions }

/**
 * Returns an interceptor for `dispatcher.compose` of undici 7 and later. Requests wait for its
 * limiter, and as long as their server asks: see `rategate/fetch`.
 */
export function pace (options?: PaceOptions): <D extends (request: any, handler: any) => boolean> (dispatch: D) => D
