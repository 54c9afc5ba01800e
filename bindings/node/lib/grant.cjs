// Permits that are the caller's.
'use strict'

const { plain, show } = require('./show.cjs')

/** The places of the compiled module's words. */
const [RELEASED, PROMISED, SCHEDULED, PERMITS, REMAINING, RESET_AFTER, ALL] = [0, 1, 2, 3, 9, 10, 11]
const FOREVER = 2n ** 64n - 1n

/** What fast functions of this environment write a grant to, before they return. */
const scratch = new BigUint64Array(ALL)

let wordsOf

class Grant {
  #words

  static {
    wordsOf = (grant) => {
      if (grant === null || typeof grant !== 'object' || !(#words in grant)) {
        throw new TypeError(`the grant is ${show(grant)}; must be a Grant of this limiter`)
      }
      return grant.#words
    }
  }

  constructor (words) {
    if (!(words instanceof BigUint64Array)) throw new TypeError('only limiters make grants')
    this.#words = words
  }

  get permits () {
    return Number(this.#words[PERMITS])
  }

  get remaining () {
    return Number(this.#words[REMAINING])
  }

  get waitNs () {
    return this.#words[RELEASED] - this.#words[SCHEDULED]
  }

  get releasedAtNs () {
    return this.#words[RELEASED]
  }

  get promisedAtNs () {
    return this.#words[PROMISED]
  }

  get scheduledAtNs () {
    return this.#words[SCHEDULED]
  }

  toJSON () {
    const { permits, remaining, waitNs, releasedAtNs, promisedAtNs, scheduledAtNs } = this
    return plain({ permits, remaining, waitNs, releasedAtNs, promisedAtNs, scheduledAtNs })
  }
}

/** Returns the grant that the last fast function wrote. */
function lastGrant () {
  return new Grant(scratch.slice(0, RESET_AFTER))
}

/** Returns what the last check wrote of the limit. */
function lastNumbers () {
  const resetAfterNs = scratch[RESET_AFTER]
  return { remaining: Number(scratch[REMAINING]), resetAfterNs: resetAfterNs === FOREVER ? null : resetAfterNs }
}

module.exports = { Grant, lastGrant, lastNumbers, scratch, wordsOf }
