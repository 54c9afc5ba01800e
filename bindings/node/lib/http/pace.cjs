// A client that waits for its own limiter, and for as long as servers ask by what they report.
'use strict'

const { functionOf, optionalSpanNs, optionsOf, permitsOf, signalOf } = require('../arguments.cjs')
const { Closed } = require('../errors.cjs')
const { Limiter, followsOutcomes } = require('../limiter.cjs')
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
    return request && new Sent(request, line, NO_PERMIT, this.#heldBy(server))
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
        const permit = await this.#permit(latest, signal)
        if (request.send(performance.now())) return new Sent(request, line, permit, this.#heldBy(server))
        // A hold has begun meanwhile. Used later than its instant, the permit could exceed the
        // limit with others: the request takes another one.
        permit.end('ignored')
      }
    } catch (error) {
      line.leave(request)
      throw error
    }
  }

  /** Waits for a permit of the limiter. */
  async #permit (latest, signal) {
    const limiter = this.#limiter
    if (limiter === undefined) return NO_PERMIT
    const timeout = latest === Infinity ? undefined : Math.max(Math.floor(latest - performance.now()), 0)
    return new Permit(limiter, await limiter.acquire(1, { signal, timeout }))
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

/** A permit of a limiter, which may be in flight. */
class Permit {
  #limiter
  #grant

  constructor (limiter, grant) {
    this.#limiter = limiter
    this.#grant = grant
  }

  followsOutcomes () {
    return followsOutcomes(this.#limiter)
  }

  /** Ends it with an outcome, which adaptive limits follow. */
  end (outcome) {
    try {
      this.#limiter.releaseWithOutcome(this.#grant, outcome)
    } catch (error) {
      // A limit that has been closed meanwhile needs nothing.
      if (!(error instanceof Closed)) throw error
    }
  }
}

const NO_PERMIT = { followsOutcomes: () => false, end: () => {} }

/** A request that is on its way. */
class Sent {
  #request
  #line
  #permit
  #onHold

  constructor (request, line, permit, onHold) {
    this.#request = request
    this.#line = line
    this.#permit = permit
    this.#onHold = onHold
  }

  /** Follows the response, whose fields are an array of names and values in turn. */
  follow (status, fields) {
    // A limiter that follows refusals cuts its rate in place of a guess.
    const guesses = !this.#permit.followsOutcomes()
    const ms = this.#line.follow(this.#request, status, fields, guesses)
    this.#endPermit(this.#request.wasRefused() ? 'dropped' : 'served')
    if (ms !== null) this.#onHold(Math.ceil(ms))
  }

  /** Ends the request, once. One without a response may have been counted by the server. */
  end () {
    this.#line.leave(this.#request)
    this.#endPermit('ignored')
  }

  #endPermit (outcome) {
    const permit = this.#permit
    this.#permit = NO_PERMIT
    permit.end(outcome)
  }
}

module.exports = { MAX_SERVERS, Pace }
