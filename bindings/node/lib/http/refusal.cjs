// Refusals of requests, and the problems (RFC 9457) that clients get.
'use strict'

const { milliseconds } = require('../errors.cjs')
const { retrySeconds } = require('./fields.cjs')

const REASONS = {
  'over-limit': [429, 'The limit is reached.'],
  'too-costly': [400, 'The request costs more than could ever pass at once.'],
  'no-key': [400, 'The request does not name its client.'],
  'ambiguous-key': [400, 'The request names its client more than once.'],
  'too-many-keys': [503, 'The key table is full.'],
  'too-many-waiting': [503, 'Too many requests are waiting.'],
  closed: [503, 'The limiter is closed.'],
  undecided: [503, 'The limit cannot be decided now.']
}
const TITLES = { 400: 'Bad Request', 503: 'Service Unavailable' }
/** The registered type (draft-ietf-httpapi-ratelimit-headers). */
const QUOTA_EXCEEDED = 'https://iana.org/assignments/http-problem-types#quota-exceeded'
const CONTENT_TYPE = 'application/problem+json'

/** A refusal of a request. */
class Refusal {
  constructor (reason, retryAfterNs, policy) {
    this.reason = reason
    ;[this.status, this.detail] = REASONS[reason]
    // Never zero: such a client would return at once.
    this.retryAfterNs = retryAfterNs === 0n ? 1n : retryAfterNs
    this.policy = policy
  }

  get retryAfter () {
    return this.retryAfterNs === null ? null : milliseconds(this.retryAfterNs)
  }

  /** Returns the body of the response, as an object. */
  problem () {
    const isOver = this.reason === 'over-limit'
    const problem = {
      type: isOver ? QUOTA_EXCEEDED : 'about:blank',
      title: isOver ? 'Quota Exceeded' : TITLES[this.status],
      status: this.status,
      detail: this.detail
    }
    if (this.retryAfterNs !== null) {
      problem.retry_after = retrySeconds(this.retryAfterNs)
      problem.retry_after_ms = Number((this.retryAfterNs + 999_999n) / 1_000_000n)
    }
    if (isOver && this.policy !== undefined) problem['violated-policies'] = [this.policy]
    return problem
  }

  /** Writes `Retry-After`, unless it is there. */
  writeRetryAfter (headers, response) {
    const there = headers.get(response, 'Retry-After')
    if (this.retryAfterNs === null || (there !== undefined && there !== null)) return
    headers.set(response, 'Retry-After', String(retrySeconds(this.retryAfterNs)))
  }

  toJSON () {
    return this.problem()
  }
}

module.exports = { CONTENT_TYPE, REASONS, Refusal }
