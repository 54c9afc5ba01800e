// Batches of permits that one thread takes ahead and counts without a call of the limiter.
'use strict'

const { permitsOf } = require('./arguments.cjs')
const { FOREVER } = require('./decision.cjs')
const { Closed, TooLong } = require('./errors.cjs')
const { showsItsGetters } = require('./show.cjs')

class Local {
  #limiter
  #batch
  #left = 0
  /** The hold of the batch. */
  #held
  /** Operations in flight end one by one, so that none is taken ahead. */
  #isInFlight

  constructor (limiter, batch) {
    this.#batch = permitsOf(batch)
    if (this.#batch === 0) throw new RangeError('the batch is 0; must be at least 1')
    this.#limiter = limiter
    this.#isInFlight = !limiter.closed && limiter.release(0)
    // It throws if as many could never pass together.
    limiter.peekNs(batch)
  }

  tryAcquire (permits = 1) {
    if (permits <= this.#left && permits > 0 && Number.isInteger(permits)) {
      this.#left -= permits
      return true
    }
    return this.#draw(permitsOf(permits))
  }

  get unused () {
    return this.#left
  }

  /** Returns what is left of the batch to the limiter. */
  close () {
    const used = this.#batch - this.#left
    this.#left = 0
    const held = this.#held
    this.#held = undefined
    try {
      held?.commit(used)
    } catch (error) {
      // A closed limiter counts nothing.
      if (!(error instanceof Closed)) throw error
    }
  }

  #hold () {
    // An error costs far more than a look.
    if (this.#limiter.peek(this.#batch) !== 0) return undefined
    try {
      return this.#limiter.tryHold(this.#batch, FOREVER)
    } catch (error) {
      // Another thread came first.
      if (error instanceof TooLong) return undefined
      throw error
    }
  }

  #draw (permits) {
    if (permits <= this.#batch && !this.#isInFlight) {
      const held = this.#hold()
      if (held) {
        // All that was left is used.
        this.#held?.keep()
        this.#held = held
        // Less than the batch, because less than `permits` was left: all of it is of this hold.
        this.#left += this.#batch - permits
        return true
      }
    }
    const missing = permits - this.#left
    if (!this.#limiter.tryAcquire(missing)) return false
    this.#left = 0
    return true
  }
}

// Node 20 has no `using` yet, but compilers do.
if (Symbol.dispose) {
  Local.prototype[Symbol.dispose] = Local.prototype.close
}

showsItsGetters(Local, ['unused'])

module.exports = { Local }
