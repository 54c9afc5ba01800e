// The decision about a try, and a promised start.
'use strict'

const { call, milliseconds } = require('./errors.cjs')

class Decision {
  constructor ({ grant, remaining, retryAfterNs, resetAfterNs }) {
    this.granted = grant !== undefined
    this.grant = grant ?? null
    this.remaining = remaining
    this.retryAfterNs = retryAfterNs ?? null
    this.resetAfterNs = resetAfterNs ?? null
  }

  get retryAfter () {
    return this.retryAfterNs === null ? null : milliseconds(this.retryAfterNs)
  }

  get resetAfter () {
    return this.resetAfterNs === null ? null : milliseconds(this.resetAfterNs)
  }
}

class Reservation {
  #native

  constructor (reserved) {
    this.#native = reserved
    this.promisedAtNs = reserved.promisedAtNs
  }

  keep () {
    return call(() => this.#native.keep())
  }

  cancel () {
    return call(() => this.#native.cancel())
  }
}

module.exports = { Decision, Reservation }
