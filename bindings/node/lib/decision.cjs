// The decision about a try, a promised start, and an estimate that is held.
'use strict'

const { permitsOf } = require('./arguments.cjs')
const { call, milliseconds } = require('./errors.cjs')
const { Grant } = require('./grant.cjs')
const { plain } = require('./show.cjs')

/** The time of a hold that does not end by itself. */
const FOREVER = `${2n ** 64n - 1n}ns`

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
  #limiter
  #key

  constructor (reserved, limiter, key) {
    this.#native = reserved
    this.#limiter = limiter
    this.#key = key
    this.promisedAtNs = reserved.promisedAtNs
  }

  keep () {
    return new Grant(call(() => this.#native.keep()), this.#limiter, this.#key)
  }

  cancel () {
    return call(() => this.#native.cancel())
  }

  toJSON () {
    return plain({ promisedAtNs: this.promisedAtNs })
  }
}

class Hold {
  #native

  constructor (held) {
    this.#native = held
    this.permits = held.permits
    this.endsAtNs = held.endsAtNs
  }

  commit (actual) {
    const number = permitsOf(actual)
    return call(() => this.#native.commit(number))
  }

  keep () {
    call(() => this.#native.keep())
  }

  cancel () {
    return call(() => this.#native.cancel())
  }

  toJSON () {
    return plain({ permits: this.permits, endsAtNs: this.endsAtNs })
  }
}

/** Returns the wait of a denial by a fast function: minus nanoseconds, or none. */
function retryAfterOf (answer, peekNs) {
  if (answer === -Infinity) return null
  // A double has all bits of what is shorter than 104 days.
  return answer >= -Number.MAX_SAFE_INTEGER ? BigInt(-answer) : peekNs()
}

module.exports = { Decision, FOREVER, Hold, Reservation, retryAfterOf }
