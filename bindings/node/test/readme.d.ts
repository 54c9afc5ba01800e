// What the samples of the README take from their surroundings.
import type { Application } from 'express'
import type * as rategate from 'rategate'

declare global {
  const app: Application
  const limiter: rategate.Limiter
  const Limiter: typeof rategate.Limiter
  const tokens: rategate.Limiter
  const other: rategate.Grant
  const signal: AbortSignal
  const times: number[]
  function call (): Promise<void>
  function request (): Promise<void>
}
