// The decision about a try, and a promised start.
'use strict'

const { call, milliseconds } = require('./errors.cjs')
const { Grant } = require('./grant.cjs')
const { plain } = require('./show.cjs')

class Decision {
  constructor (grant, retryAfterNs, remaining, resetAfterNs) {
    this.granted = grant !== null
    this.grant = grant
    this.remaining = remaining
    this.retryAfterNs = retryAfterNs
    this.resetAfterNs = resetAfterNs
  }

  get retryAfter () {
    return this.retryAfterNs === null ? null : milliseconds(this.retryAfterNs)
  }

  get resetAfter () {
    return this.resetAfterNs === null ? null : milliseconds(this.resetAfterNs)
  }

  toJSON () {
    const { granted, grant, remaining, retryAfter, retryAfterNs, resetAfter, resetAfterNs } = this
    return plain({ granted, grant, remaining, retryAfter, retryAfterNs, resetAfter, resetAfterNs })
  }
}

class Reservation {
  #native

  constructor (reserved) {
    this.#native = reserved
    this.promisedAtNs = reserved.promisedAtNs
  }

  keep () {
    return new Grant(call(() => this.#native.keep()))
  }

  cancel () {
    return call(() => this.#native.cancel())
  }

  toJSON () {
    return plain({ promisedAtNs: this.promisedAtNs })
  }
}

/** Returns the wait of a denial by a fast function: minus nanoseconds, or none. */
function retryAfterOf (answer, peekNs) {
  if (answer === -Infinity) return null
  // A double has all bits of what is shorter than 104 days.
  return answer >= -Number.MAX_SAFE_INTEGER ? BigInt(-answer) : peekNs()
}

module.exports = { Decision, Reservation, retryAfterOf }
