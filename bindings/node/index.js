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
  RateLimitError,
  TooLong
} from './index.cjs'
