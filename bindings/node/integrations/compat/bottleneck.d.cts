declare namespace Bottleneck {
  interface ConstructorOptions {
    readonly id?: string | null
    readonly maxConcurrent?: number | null
    /** Milliseconds. */
    readonly minTime?: number | null
    readonly highWater?: number | null
    readonly strategy?: Strategy
    readonly reservoir?: number | null
    readonly reservoirRefreshInterval?: number | null
    /** Equal to `reservoir`. */
    readonly reservoirRefreshAmount?: number | null
    readonly rejectOnDrop?: boolean | null
    /** Of a group: how long a limiter without jobs is kept. */
    readonly timeout?: number | null
  }

  interface JobOptions {
    /** 5, or none: jobs start in the order of their calls. */
    readonly priority?: number | null
    readonly weight?: number | null
    readonly expiration?: number | null
    readonly id?: string | null
  }

  interface StopOptions {
    readonly dropWaitingJobs?: boolean
    readonly dropErrorMessage?: string
    readonly enqueueErrorMessage?: string
  }

  interface Counts { RECEIVED: number; QUEUED: number; RUNNING: number; EXECUTING: number; DONE: number }

  type Strategy = 1 | 2

  class BottleneckError extends Error {}

  class Group {
    constructor (options?: ConstructorOptions)
    key (key?: string): Bottleneck
    keys (): string[]
    limiters (): { key: string; limiter: Bottleneck }[]
    deleteKey (key: string): Promise<boolean>
    on (event: 'created', listener: (limiter: Bottleneck, key: string) => void): this
    readonly timeout: number
  }
}

/** Has the names of Bottleneck and the semantics of rategate. */
declare class Bottleneck {
  static readonly strategy: { readonly LEAK: 1; readonly OVERFLOW: 2 }
  constructor (options?: Bottleneck.ConstructorOptions)
  readonly id: string
  schedule<R, A extends unknown[]> (run: (...args: A) => R, ...args: A): Promise<Awaited<R>>
  schedule<R, A extends unknown[]> (options: Bottleneck.JobOptions, run: (...args: A) => R, ...args: A): Promise<Awaited<R>>
  wrap<R, A extends unknown[]> (run: (...args: A) => R): ((...args: A) => Promise<Awaited<R>>) & {
    withOptions: (options: Bottleneck.JobOptions, ...args: A) => Promise<Awaited<R>>
  }
  /** The last argument is called with the results; the one of the function with an error first. */
  submit (run: (...args: any[]) => void, ...args: any[]): void
  submit (options: Bottleneck.JobOptions, run: (...args: any[]) => void, ...args: any[]): void
  chain (limiter?: Bottleneck | null): this
  stop (options?: Bottleneck.StopOptions): Promise<void>
  counts (): Bottleneck.Counts
  queued (): number
  empty (): boolean
  running (): Promise<number>
  done (): Promise<number>
  check (weight?: number): Promise<boolean>
  currentReservoir (): Promise<number | null>
  incrementReservoir (amount: number): Promise<number>
  on (event: string, listener: (...args: any[]) => any): this
  once (event: string, listener: (...args: any[]) => any): this
  removeAllListeners (event?: string): this
}

export = Bottleneck
