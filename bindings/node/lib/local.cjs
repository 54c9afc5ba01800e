// Batches of permits that one thread takes ahead and counts without a call of the limiter.
'use strict'

const { permitsOf } = require('./arguments.cjs')
const { showsItsGetters } = require('./show.cjs')

class Local {
  #limiter
  #batch
  #left = 0
  #grant

  constructor (limiter, batch) {
    this.#batch = permitsOf(batch)
    if (this.#batch === 0) throw new RangeError('the batch is 0; must be at least 1')
    this.#limiter = limiter
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
    const left = this.#left
    this.#left = 0
    if (left > 0 && !this.#limiter.closed) this.#limiter.refund(this.#grant, left)
  }

  #draw (permits) {
    if (permits <= this.#batch) {
      const { grant } = this.#limiter.check(this.#batch)
      if (grant) {
        // Less than the batch, because less than `permits` was left: all of it is of this grant.
        this.#left += this.#batch - permits
        this.#grant = grant
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
