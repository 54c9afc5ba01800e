// One instance serves both kinds of modules, so that their waits keep one order.
export {
  Closed,
  ExceedsCapacity,
  Full,
  Grant,
  Keyed,
  Limiter,
  ManualClock,
  Never,
  OpenLoop,
  RateLimitError,
  Release,
  Shared,
  SharedDecision,
  SharedGrant,
  TooLong,
  Unavailable
} from './index.cjs'
