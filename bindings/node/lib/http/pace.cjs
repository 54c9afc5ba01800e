// A client that waits for its own limiter, and for as long as servers ask by what they report.
'use strict'

const { functionOf, optionalSpanNs, optionsOf, permitsOf, signalOf } = require('../arguments.cjs')
const { Limiter } = require('../limiter.cjs')
const native = require('../native.cjs')
const { show } = require('../show.cjs')
const { Line } = require('./line.cjs')

const OPTIONS = ['limiter', 'maxHold', 'maxWait', 'maxWaiting', 'jitter', 'spread', 'onHold']
const DEFAULT_WAITERS = 65_536
/** The servers that are paced apart. Where all of them hold, more share one pace. */
const MAX_SERVERS = 1024

/** The starts of a client's requests. */
class Pace {
  #limiter
  #maxWait
  #onHold
  #newLine
  /** The lines of servers, the least recently used one first. */
  #lines = new Map()

  constructor (options) {
    const { limiter, maxHold, maxWait, maxWaiting = DEFAULT_WAITERS, jitter, spread = true, onHold } = optionsOf(options, OPTIONS)
    if (limiter !== undefined && !(limiter instanceof Limiter)) {
      throw new TypeError(`limiter is ${show(limiter)}; must be a Limiter`)
    }
    if (typeof spread !== 'boolean') throw new TypeError(`spread is ${show(spread)}; must be true or false`)
    if (onHold !== undefined) functionOf(onHold, 'onHold')
    const [maxHoldNs, maxWaitNs, jitterNs] =
      Object.entries({ maxHold, maxWait, jitter }).map(([name, span]) => optionalSpanNs(span, name))
    const waiters = Math.max(permitsOf(maxWaiting), 1)
    this.#limiter = limiter
    this.#maxWait = maxWaitNs === undefined ? Infinity : Number(maxWaitNs) / 1e6
    this.#onHold = onHold
    this.#newLine = () => new Line(new native.Pacing(spread, jitterNs, maxHoldNs, waiters), this.#maxWait, waiters)
  }

  /** Starts a request that waits for nothing. Returns `undefined` for any other. */
  tryStart (server) {
    if (this.#limiter !== undefined) return undefined
    const line = this.#lineOf(server)
    const request = line.tryStart()
    return request && new Sent(request, line, () => {}, this.#heldBy(server))
  }

  /** Waits until a request may start. */
  async start (server, signal) {
    signalOf(signal)
    const latest = performance.now() + this.#maxWait
    const line = this.#lineOf(server)
    const request = line.join()
    try {
      for (let isFirst = true; ; isFirst = false) {
        signal?.throwIfAborted()
        await line.wait(request, latest, signal, isFirst)
        const release = await this.#permit(latest, signal)
        if (request.send(performance.now())) return new Sent(request, line, release, this.#heldBy(server))
        // A hold has begun meanwhile. Used later than its instant, the permit could exceed the
        // limit with others: the request takes another one.
        release()
      }
    } catch (error) {
      line.leave(request)
      throw error
    }
  }

  /** Waits for a permit of the limiter. Returns the function that ends an operation in flight. */
  async #permit (latest, signal) {
    const limiter = this.#limiter
    if (limiter === undefined) return () => {}
    const timeout = latest === Infinity ? undefined : Math.max(Math.floor(latest - performance.now()), 0)
    await limiter.acquire(1, { signal, timeout })
    return () => {
      if (!limiter.closed) limiter.release(1)
    }
  }

  #heldBy (server) {
    return (ms) => this.#onHold?.(ms, server)
  }

  #lineOf (server) {
    let line = this.#lines.get(server)
    if (line === undefined) {
      if (this.#lines.size >= MAX_SERVERS) this.#makeRoom()
      if (this.#lines.size >= MAX_SERVERS) server = ''
      line = this.#lines.get(server) ?? this.#newLine()
    }
    this.#lines.delete(server)
    this.#lines.set(server, line)
    return line
  }

  /** Forgets the half of the servers that were used longest ago, but those that make wait. */
  #makeRoom () {
    for (const [server, line] of this.#lines) {
      if (this.#lines.size <= MAX_SERVERS / 2) return
      if (line.isIdle()) this.#lines.delete(server)
    }
  }
}

/** A request that is on its way. */
class Sent {
  #request
  #line
  #release
  #onHold

  constructor (request, line, release, onHold) {
    this.#request = request
    this.#line = line
    this.#release = release
    this.#onHold = onHold
  }

  /** Follows the hints of the response, whose fields are an array of names and values in turn. */
  follow (status, fields) {
    const ms = this.#line.follow(this.#request, status, fields)
    if (ms !== null) this.#onHold(Math.ceil(ms))
  }

  /** Ends the request, once. One without a response may have been counted by the server. */
  end () {
    const release = this.#release
    this.#release = () => {}
    this.#line.leave(this.#request)
    release()
  }
}

module.exports = { MAX_SERVERS, Pace }
