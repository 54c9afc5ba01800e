// A client that waits for its own limiter, and as long as servers ask it to.
'use strict'

const { clearTimeout, setTimeout } = require('node:timers')

const { onAbort } = require('../abort.cjs')
const { functionOf, optionalSpanNs, optionsOf, permitsOf, signalOf } = require('../arguments.cjs')
const { Full, TooLong } = require('../errors.cjs')
const { Limiter } = require('../limiter.cjs')
const { show } = require('../show.cjs')
const { MAX_HOLD_MS, TOKENS, hintsOf } = require('./hints.cjs')

const OPTIONS = ['limiter', 'maxHold', 'maxWait', 'maxWaiting', 'jitter', 'onHold']
const DEFAULT_WAITERS = 65_536
/** The servers whose holds are kept apart. More share the hold of all others. */
const MAX_SERVERS = 1024
/** The longest that a timer of Node can wait. */
const MAX_TIMER = 2 ** 31 - 1
/** The default jitter of a hold: at most a fifth of it, and at most half a minute. */
const [JITTER_PART, MAX_JITTER] = [5, 30_000]

/** The hold of one server. Times are milliseconds of a clock that never goes back. */
class Hold {
  until = 0
  #named = 0
  #jitter = 0
  #random = 0

  /** Holds for so long from now on. A hold only grows: older responses may arrive later. */
  extend (now, hold, maxJitter, random) {
    const until = now + hold
    if (hold <= 0 || until <= this.#named) return false
    // All extensions share a random number: the latest of several would be near the maximum.
    if (now >= this.until) [this.#jitter, this.#random] = [0, random()]
    const max = maxJitter ?? Math.min(hold / JITTER_PART, MAX_JITTER)
    this.#jitter = Math.max(this.#jitter, max * this.#random)
    this.#named = until
    this.until = until + this.#jitter
    return true
  }
}

/** The requests that wait for the end of a hold, in their order. */
class Line {
  hold = new Hold()
  #waiters = new Set()
  #timer

  get length () {
    return this.#waiters.size
  }

  /** Waits for the end of the hold. The signal leaves the line. */
  wait (signal) {
    return new Promise((resolve, reject) => {
      const waiter = { resolve, end: () => {} }
      const abort = () => {
        this.#waiters.delete(waiter)
        if (this.#waiters.size === 0) clearTimeout(this.#timer)
        reject(signal.reason)
      }
      if (signal) waiter.end = onAbort(signal, abort)
      this.#waiters.add(waiter)
      if (this.#waiters.size === 1) this.#sleep()
    })
  }

  #sleep () {
    const left = this.hold.until - performance.now()
    // A timer may fire early, and another response may have extended the hold.
    if (left > 0) {
      this.#timer = setTimeout(() => this.#sleep(), Math.min(Math.ceil(left), MAX_TIMER))
      return
    }
    const waiters = [...this.#waiters]
    this.#waiters.clear()
    for (const waiter of waiters) {
      waiter.end()
      waiter.resolve()
    }
  }
}

/** The starts of a client's requests. */
class Pace {
  #limiter
  #maxHoldNs
  #maxWait
  #maxWaiting
  #jitter
  #onHold
  #lines = new Map()

  constructor (options) {
    const { limiter, maxHold = MAX_HOLD_MS, maxWait, maxWaiting = DEFAULT_WAITERS, jitter, onHold } = optionsOf(options, OPTIONS)
    if (limiter !== undefined && !(limiter instanceof Limiter)) {
      throw new TypeError(`limiter is ${show(limiter)}; must be a Limiter`)
    }
    if (onHold !== undefined) functionOf(onHold, 'onHold')
    const ms = (span, name) => {
      const ns = optionalSpanNs(span, name)
      return ns === undefined ? undefined : Number(ns) / 1e6
    }
    this.#limiter = limiter
    this.#maxHoldNs = optionalSpanNs(maxHold, 'maxHold')
    this.#maxWait = ms(maxWait, 'maxWait')
    this.#maxWaiting = permitsOf(maxWaiting)
    this.#jitter = ms(jitter, 'jitter')
    this.#onHold = onHold
  }

  /** Returns `true` if a request may start without a wait. */
  mayStart (server) {
    return this.#limiter === undefined && performance.now() >= this.#lineOf(server).hold.until
  }

  /** Waits until a request may start. Returns the function that its end calls. */
  async start (server, signal) {
    signalOf(signal)
    signal?.throwIfAborted()
    const latest = this.#maxWait === undefined ? Infinity : performance.now() + this.#maxWait
    const line = this.#lineOf(server)
    await this.#wait(line, latest, signal)
    if (this.#limiter === undefined) return () => {}
    const timeout = latest === Infinity ? undefined : Math.max(Math.floor(latest - performance.now()), 0)
    const grant = await this.#limiter.acquire(1, { signal, timeout })
    try {
      // Another response may have asked to hold meanwhile.
      await this.#wait(line, latest, signal)
    } catch (error) {
      // Also of operations in flight, so that nothing is left to release.
      if (!this.#limiter.closed) this.#limiter.refund(grant)
      throw error
    }
    return () => this.#release()
  }

  async #wait (line, latest, signal) {
    for (let now; (now = performance.now()) < line.hold.until;) {
      const wait = line.hold.until - now
      if (line.hold.until > latest) {
        const retry = BigInt(Math.ceil((line.hold.until - latest) * 1e6))
        throw new TooLong(`the server asks for a wait of ${Math.ceil(wait)}ms; the longest is ${this.#maxWait}ms`, BigInt(Math.ceil(wait * 1e6)), retry)
      }
      if (line.length >= this.#maxWaiting) throw new Full(`${this.#maxWaiting} requests wait for the server; no more may`)
      await line.wait(signal)
    }
  }

  #release () {
    if (!this.#limiter.closed) this.#limiter.release(1)
  }

  /** Follows the hints of a response. `valuesOf` returns the lines of a field. */
  follow (server, status, valuesOf) {
    const now = BigInt(Date.now()) * 1_000_000n
    const { hold, limits } = hintsOf(status, valuesOf, now, this.#maxHoldNs)
    // What the next request takes of them is not known.
    const spent = limits.filter(({ remaining, unit }) => remaining === 0n && (unit === null || TOKENS.includes(unit)))
    const longest = spent.reduce((max, { reset }) => reset > max ? reset : max, hold)
    const ms = Math.ceil(Number(longest) / 1e6)
    const line = this.#lineOf(server)
    if (line.hold.extend(performance.now(), ms, this.#jitter, Math.random)) this.#onHold?.(ms, server)
  }

  #lineOf (server) {
    const known = this.#lines.get(server)
    if (known) return known
    if (this.#lines.size >= MAX_SERVERS) {
      const now = performance.now()
      for (const [name, line] of this.#lines) {
        if (line.hold.until <= now && line.length === 0) this.#lines.delete(name)
      }
      // All of them hold: what none of them is waits with the others.
      if (this.#lines.size >= MAX_SERVERS) server = ''
    }
    const line = this.#lines.get(server) ?? new Line()
    this.#lines.set(server, line)
    return line
  }
}

module.exports = { Hold, MAX_SERVERS, Pace }
