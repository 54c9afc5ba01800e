// The requests to one server, in their order. The pacing of the compiled module says when each may
// start; here they wait for it. Times are milliseconds of a clock that never goes back.
'use strict'

const { clearTimeout, setTimeout } = require('node:timers')

const { onAbort } = require('../abort.cjs')
const { Full, TooLong } = require('../errors.cjs')

/** The longest that a timer of Node can wait. */
const MAX_TIMER = 2 ** 31 - 1

class Line {
  #pacing
  #maxWait
  #maxWaiting
  /** Those that a hold has sent back after their start are ahead of the others. */
  #waiters = [new Set(), new Set()]
  #timer
  /** The requests that wait, or have no response yet. */
  #open = 0

  constructor (pacing, maxWait, maxWaiting) {
    this.#pacing = pacing
    this.#maxWait = maxWait
    this.#maxWaiting = maxWaiting
  }

  /** Returns a request behind those that wait. */
  join () {
    const request = this.#pacing.join()
    if (request === null) throw new Full(`${this.#maxWaiting} requests wait for the server; no more may`)
    this.#open++
    return request
  }

  /** Returns a request that has started at once, or `undefined`. */
  tryStart () {
    if (this.#waiters.some((waiters) => waiters.size > 0)) return undefined
    const now = performance.now()
    const request = this.join()
    if (request.start(now) === 0 && request.send(now)) return request
    this.#end(request)
    return undefined
  }

  /** Waits until a request may start. Rejects once that is known to be after `latest`. */
  wait (request, latest, signal, isFirst) {
    return new Promise((resolve, reject) => {
      const now = performance.now()
      const waiters = this.#waiters[isFirst ? 1 : 0]
      const waiter = { request, latest, waiters, resolve, reject, end: () => {} }
      waiters.add(waiter)
      // Others ahead may be due, whose timer has not fired yet.
      this.#advance(now)
      if (latest < Infinity && waiters.has(waiter)) this.#try(waiter, now)
      if (signal && waiters.has(waiter)) {
        waiter.end = onAbort(signal, () => {
          this.#remove(waiter)
          this.leave(request)
          reject(signal.reason)
        })
      }
    })
  }

  /**
   * Follows the hints of a response. Returns the hold that they begin or extend, or `null`. Where
   * the server does not say how long, there is none unless it `guesses`.
   */
  follow (request, status, fields, guesses) {
    const now = performance.now()
    const hold = request.follow(now, status, fields, guesses)
    this.#advance(now)
    return hold
  }

  /** Ends a request, wherever it is. Those behind it move up. */
  leave (request) {
    this.#end(request)
    this.#advance(performance.now())
  }

  /** Returns `true` if no request is open, and the next one may start. */
  isIdle () {
    if (this.#open > 0) return false
    const probe = this.join()
    const isIdle = probe.start(performance.now()) === 0
    this.#end(probe)
    return isIdle
  }

  #end (request) {
    if (request.leave()) this.#open--
  }

  /** Starts requests in their order, and sleeps until the next one may. */
  #advance (now) {
    clearTimeout(this.#timer)
    for (const waiters of this.#waiters) {
      for (const waiter of waiters) {
        const wait = this.#try(waiter, now)
        if (wait === 0) continue
        // It may fire early: the clock is looked at again.
        const sleep = Math.min(Math.ceil(wait), MAX_TIMER)
        this.#timer = setTimeout(() => this.#advance(performance.now()), sleep)
        return
      }
    }
  }

  /** Starts a request or refuses it, and returns 0; or returns the time that it still waits. */
  #try (waiter, now) {
    const wait = waiter.request.start(now)
    if (wait > 0 && now + wait <= waiter.latest) return wait
    this.#remove(waiter)
    if (wait === 0) {
      waiter.resolve()
    } else {
      this.#end(waiter.request)
      waiter.reject(this.#tooLong(wait, now + wait - waiter.latest))
    }
    return 0
  }

  #remove (waiter) {
    waiter.waiters.delete(waiter)
    waiter.end()
  }

  #tooLong (wait, retry) {
    const [waitNs, retryNs] = [wait, retry].map((ms) => BigInt(Math.ceil(ms * 1e6)))
    return new TooLong(`the server asks for a wait of ${Math.ceil(wait)}ms; the longest is ${this.#maxWait}ms`, waitNs, retryNs)
  }
}

module.exports = { Line }
