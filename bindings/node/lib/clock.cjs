// A clock that tests move.
'use strict'

const { setImmediate } = require('node:timers')

const { spanNs } = require('./arguments.cjs')
const { milliseconds } = require('./errors.cjs')
const native = require('./native.cjs')
const { show, showsItsGetters } = require('./show.cjs')
const { ended, look } = require('./waits.cjs')

let nativeOf

class ManualClock {
  #native = new native.ManualClock()

  static {
    nativeOf = (clock) => {
      if (clock === undefined) return undefined
      if (clock === null || typeof clock !== 'object' || !(#native in clock)) {
        throw new TypeError(`clock is ${show(clock)}; must be a ManualClock`)
      }
      return clock.#native
    }
  }

  get now () {
    return milliseconds(this.#native.nowNs)
  }

  get nowNs () {
    return this.#native.nowNs
  }

  advance (span) {
    this.#native.advance(spanNs(span, 'the time'))
  }

  /** Moves to the next instant at which a limiter has to look, be it for a wait or for itself. */
  step () {
    const ns = this.#native.step()
    return ns === null ? null : milliseconds(ns)
  }

  /** Lets the waits that are over end, and their callers go on. */
  async settle () {
    // A wait that ends may make the next one due, which then is seen in the pass after.
    for (let quiet = 0; quiet < 2;) {
      const before = ended()
      look()
      await new Promise((resolve) => setImmediate(resolve))
      quiet = ended() > before ? 0 : quiet + 1
    }
  }
}

showsItsGetters(ManualClock, ['nowNs'])

module.exports = { ManualClock, nativeOf }
