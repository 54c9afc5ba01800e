// Permits that are the caller's.
'use strict'

const { call } = require('./errors.cjs')
const { show, showsItsGetters } = require('./show.cjs')

/** The places of the compiled module's words. */
const [RELEASED, PROMISED, SCHEDULED, PERMITS, REMAINING, RESET_AFTER, MORE_AFTER, ALL] = [0, 1, 2, 3, 4, 5, 5, 6]
const OTHER_LIMITER = 'the grant is of another limiter or key; only the one that granted it takes it back'
const FOREVER = 2n ** 64n - 1n

/** What fast functions of this environment write a grant to, before they return. */
const scratch = new BigUint64Array(ALL)
/** The same words, of which one may be a number that costs no big integer. */
const numbers = new Float64Array(scratch.buffer)

/** The grants whose words are in one array: an array for each costs ten times as much. */
const GRANTS_OF_ARRAY = 32
let array
let used = GRANTS_OF_ARRAY

/** Releases a grant, once, by a call that does. */
let ended

class Grant {
  /** An array, and where in it the words begin. */
  #words
  #at
  /** The id of its limiter, or of its table and then the key. */
  #limiter
  #key
  #isReleased = false

  static {
    const wordsOf = (grant) => grant.#words.subarray(grant.#at, grant.#at + REMAINING)
    const check = (grant, limiter, key) => {
      if (grant === null || typeof grant !== 'object' || !(#words in grant)) {
        throw new TypeError(`the grant is ${show(grant)}; must be a Grant of this limiter`)
      }
      if (grant.#limiter !== limiter || grant.#key !== key) {
        throw new RangeError(OTHER_LIMITER)
      }
    }
    ended = (grant, limiter, key, end) => {
      check(grant, limiter, key)
      if (grant.#isReleased) throw new RangeError('the grant has been released; it is released once')
      const result = call(() => end(wordsOf(grant)))
      grant.#isReleased = true
      return result
    }
  }

  constructor (words, limiter, key, at = 0) {
    if (!(words instanceof BigUint64Array)) throw new TypeError('only limiters make grants')
    this.#words = words
    this.#at = at
    this.#limiter = limiter
    this.#key = key
  }

  get permits () {
    return Number(this.#words[this.#at + PERMITS])
  }

  get waitNs () {
    return this.#words[this.#at + RELEASED] - this.#words[this.#at + SCHEDULED]
  }

  get releasedAtNs () {
    return this.#words[this.#at + RELEASED]
  }

  get promisedAtNs () {
    return this.#words[this.#at + PROMISED]
  }

  get scheduledAtNs () {
    return this.#words[this.#at + SCHEDULED]
  }
}

showsItsGetters(Grant, ['permits', 'waitNs', 'releasedAtNs', 'promisedAtNs', 'scheduledAtNs'])

/** Returns the message of a refund of more than what is left of a grant. */
function notLeft (permits, left) {
  return `${permits} permits of the grant cannot come back: ${left} are left of it, and each comes back once`
}

/** Returns the grant that the last fast function wrote. */
function lastGrant (limiter, key) {
  if (used === GRANTS_OF_ARRAY) {
    array = new BigUint64Array(ALL * GRANTS_OF_ARRAY)
    used = 0
  }
  const at = ALL * used++
  array.set(scratch, at)
  return new Grant(array, limiter, key, at)
}

/** Returns what the last check wrote of the limit. */
function lastNumbers () {
  const resetAfterNs = scratch[RESET_AFTER]
  return { remaining: Number(scratch[REMAINING]), resetAfterNs: resetAfterNs === FOREVER ? null : resetAfterNs }
}

/** Returns the milliseconds until more than what the last pass left is free, `null` if never. */
function lastMoreAfter () {
  const ns = numbers[MORE_AFTER]
  return ns >= 0 ? ns / 1e6 : null
}

module.exports = { Grant, OTHER_LIMITER, ended, lastGrant, lastMoreAfter, lastNumbers, notLeft, scratch }
