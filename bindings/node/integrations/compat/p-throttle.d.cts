type AnyFunction = (...args: any[]) => unknown

declare namespace pThrottle {
  interface Options {
    /** The most calls, or the most weight, in any interval. */
    readonly limit: number
    /** Milliseconds. */
    readonly interval: number
    /** It is always so. */
    readonly strict?: boolean
    /** Its abort rejects the calls that wait, and later ones. The limit is not reset. */
    readonly signal?: AbortSignal
    readonly onDelay?: (...args: any[]) => void
    /** A whole number. */
    readonly weight?: (...args: any[]) => number
  }

  type ThrottledFunction<F extends AnyFunction> = ((
    this: ThisParameterType<F>,
    ...args: Parameters<F>
  ) => Promise<Awaited<ReturnType<F>>>) & { isEnabled: boolean; readonly queueSize: number }
}

/** Has the names of p-throttle and the semantics of rategate. */
declare function pThrottle (
  options: pThrottle.Options
): <F extends AnyFunction> (run: F) => pThrottle.ThrottledFunction<F>

export = pThrottle
