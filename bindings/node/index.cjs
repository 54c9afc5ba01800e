'use strict'

const { ManualClock } = require('./lib/clock.cjs')
const { Closed, ExceedsCapacity, Full, Never, RateLimitError, TooLong, Unavailable } = require('./lib/errors.cjs')
const { Grant } = require('./lib/grant.cjs')
const { Keyed } = require('./lib/keyed.cjs')
const { Limiter } = require('./lib/limiter.cjs')
const { OpenLoop, Release } = require('./lib/load.cjs')
const { Shared, SharedDecision, SharedGrant } = require('./lib/store.cjs')

module.exports = {
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
}
