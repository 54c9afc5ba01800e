// Decisions about requests, which the frameworks' middlewares share.
'use strict'

const { functionOf, optionalSpanNs, optionsOf, permitsOf } = require('../arguments.cjs')
const { ManualClock } = require('../clock.cjs')
const { FOREVER } = require('../decision.cjs')
const { Closed, ExceedsCapacity, Full, Never, RateLimitError, TooLong, Unavailable } = require('../errors.cjs')
const { lastMoreAfter } = require('../grant.cjs')
const { Keyed, rawOf: rawOfKeyed } = require('../keyed.cjs')
const { Limiter, rawOf } = require('../limiter.cjs')
const { show } = require('../show.cjs')
const { Shared, configOf, warnOfAnother } = require('../store.cjs')
const { Fields, announcedOf } = require('./fields.cjs')
const { AMBIGUOUS, peer, sourceOf } = require('./keys.cjs')
const { CONTENT_TYPE, REASONS, Refusal } = require('./refusal.cjs')

const OPTIONS = ['key', 'missing', 'cost', 'waitWithin', 'refundWhen', 'headers', 'answer', 'onRefused']
const OPTIONS_OF_KEYED = ['clock', 'maxBytes', 'maxKeys', 'whenFull']
const MISSING = ['share', 'refuse', 'pass']
/** The key of all requests without one. No header has this character. */
const SHARED = '\0'

/** Returns the outcome of a request: why it is refused, what remains, and when there is more. */
function outcome (refusal, remaining, moreAfter) {
  return { refusal, remaining, moreAfter }
}

const UNCOUNTED = outcome(null, null, null)
/** The outcome of a request whose client has left while it waited. */
const GONE = outcome(null, null, null)

/** A limit of requests, for each key or for all together. */
class Gate {
  #limiter
  /** Without the objects of a decision, which cost more than it does. */
  #raw
  #isKeyed
  /** True if a store decides, whose replies are promises. */
  #isShared
  /** True if its grants come back from clients that have left: the object of one costs 10 us. */
  #keepsGrants
  #countsInFlight
  #fields
  #options
  #key
  #missing
  #cost
  #waitWithin

  constructor (limit, options) {
    this.#isShared = limit instanceof Shared
    if (this.#isShared) warnOfAnother(limit)
    const isMade = this.#isShared || limit instanceof Limiter || limit instanceof Keyed
    this.#options = optionsOf(options, isMade ? OPTIONS : [...OPTIONS, ...OPTIONS_OF_KEYED])
    const { key, missing, cost, waitWithin, refundWhen, headers, answer, onRefused } = this.#options
    for (const [name, value] of Object.entries({ cost, refundWhen, answer, onRefused })) {
      if (value !== undefined) functionOf(value, name)
    }
    if (missing !== undefined && !MISSING.includes(missing)) {
      throw new TypeError(`missing is ${show(missing)}; must be "share", "refuse" or "pass"`)
    }
    if (limit instanceof Limiter && (key !== undefined || missing !== undefined)) {
      throw new TypeError('a Limiter is one limit for all requests, so it takes no key; use a Keyed or a Shared')
    }
    optionalSpanNs(waitWithin, 'waitWithin')
    this.#limiter = isMade ? limit : new Keyed(limit, Object.fromEntries(OPTIONS_OF_KEYED.map((name) => [name, this.#options[name]])))
    this.#isKeyed = !(this.#limiter instanceof Limiter)
    if (!this.#isShared) this.#raw = this.#isKeyed ? rawOfKeyed(this.#limiter) : rawOf(this.#limiter)
    this.#key = this.#isKeyed ? sourceOf(key ?? peer()) : undefined
    this.#missing = missing
    this.#cost = cost
    this.#waitWithin = waitWithin ?? undefined
    const config = this.#isShared ? configOf(limit) : { limit: isMade ? undefined : limit }
    // The time matters where permits are borrowed, and such a client has rarely left.
    this.#keepsGrants = this.#isShared && (!config.isLeased || refundWhen !== undefined)
    const numbers = config.limit === undefined ? undefined : numbersOf(config.limit)
    // A store has no limits on operations in flight.
    this.#countsInFlight = numbers?.countsInFlight ?? (!this.#isShared && this.#of(SHARED).release(0))
    this.#fields = headers === false ? undefined : fieldsOf(headers, numbers)
    this.counts = { passed: 0, ...Object.fromEntries(Object.keys(REASONS).map((reason) => [reason, 0])) }
  }

  /** Puts the handles of a limit on its middleware. */
  handle (middleware) {
    return Object.assign(middleware, { limiter: this.#limiter, counts: this.counts })
  }

  get answer () {
    return this.#options.answer
  }

  /**
   * Decides about a request, at once or by a promise. `context` is what the framework's own
   * functions get.
   */
  decide (request, response, context) {
    const key = this.#isKeyed ? this.#key(request, context) : undefined
    const named = this.#isKeyed ? this.#keyOr(key) : undefined
    if (typeof named === 'object') return this.#counted(named, request)
    const cost = this.#cost === undefined ? 1 : permitsOf(this.#cost(request, context))
    if (cost === 0) return this.#counted(UNCOUNTED, request)
    return this.#take(named, cost, request, response)
  }

  /** Writes the fields of a decision to a response, with the functions of its framework. */
  write ({ refusal, remaining, moreAfter }, headers, response) {
    if (this.#fields !== undefined && remaining !== null) this.#fields.write(remaining, moreAfter, headers, response)
    refusal?.writeRetryAfter(headers, response)
  }

  /** Returns the key, or the outcome of a request without one. */
  #keyOr (key) {
    if (typeof key === 'string') return key
    if (typeof key === 'number' || typeof key === 'bigint') return String(key)
    const isAmbiguous = key === AMBIGUOUS
    if (!isAmbiguous && key !== undefined && key !== null) {
      throw new TypeError(`the key of a request is ${show(key)}; must be text, a number, or undefined for none`)
    }
    if (this.#missing === 'pass') return UNCOUNTED
    if (this.#missing === 'share' || (this.#missing === undefined && !isAmbiguous)) return SHARED
    return this.#refused(isAmbiguous ? 'ambiguous-key' : 'no-key')
  }

  #take (key, cost, request, response) {
    if (this.#isShared && this.#waitWithin === undefined) return this.#ask(key, cost, request, response)
    if (this.#isShared) return this.#wait(key, cost, request, response)
    if (!this.#countsInFlight && this.#options.refundWhen !== undefined) {
      const decided = this.#hold(key, cost, request, response)
      if (decided !== undefined) return decided
    } else if (!this.#countsInFlight) {
      const attempt = this.#fields === undefined ? this.#raw.attempt : this.#raw.pass
      const remaining = this.#isKeyed ? attempt(key, cost) : attempt(cost)
      if (remaining >= 0) return this.#counted(outcome(null, remaining, this.#fields && lastMoreAfter()), request)
    }
    let limiter
    let decision
    try {
      // Permits in flight end at the limiter that counted them.
      limiter = this.#countsInFlight ? this.#of(key) : undefined
      decision = limiter ? limiter.check(cost) : this.#isKeyed ? this.#limiter.check(key, cost) : this.#limiter.check(cost)
    } catch (error) {
      return this.#counted(this.#failed(error, key, cost, false), request)
    }
    const { grant, remaining } = decision
    if (grant !== null) return this.#granted(key, grant, remaining, limiter && (() => limiter.release(cost)), request, response)
    if (this.#waitWithin !== undefined) return this.#wait(key, cost, request, response)
    return this.#counted(this.#over(decision.retryAfterNs, Math.min(remaining, cost - 1)), request)
  }

  /** Holds permits that a response may bring back. Returns `undefined` for a request that is not held. */
  #hold (key, cost, request, response) {
    // The error of a denial costs far more than a look.
    const waitNs = this.#isKeyed ? this.#raw.peek(key, cost) : this.#raw.peek(cost)
    if (waitNs > 0 || waitNs < 0) return undefined
    try {
      const held = this.#isKeyed ? this.#limiter.tryHold(key, cost, FOREVER) : this.#limiter.tryHold(cost, FOREVER)
      return this.#held(key, held, request, response)
    } catch (error) {
      // Another came first, or there is no memory for a hold: it counts, whatever the response is.
      if (error instanceof TooLong || error instanceof Full) return undefined
      return this.#counted(this.#failed(error, key, cost, false), request)
    }
  }

  #held (key, held, request, response) {
    const remaining = this.#isKeyed ? this.#limiter.remaining(key) : this.#limiter.remaining
    return this.#granted(key, null, remaining, () => {
      if (this.#isRefunded(response)) held.cancel()
      else held.keep()
    }, request, response)
  }

  /** Decides by the reply of a store. */
  async #ask (key, cost, request, response) {
    let decision
    try {
      decision = await this.#limiter.check(key, cost, { refundable: this.#keepsGrants })
    } catch (error) {
      return this.#counted(this.#failed(error, key, cost, false), request)
    }
    const { grant, remaining, retryAfterNs, by } = decision
    if (grant !== null) return this.#granted(key, grant, remaining, this.#refund(key, grant, response), request, response)
    // Without the store and a part of its limit, the client has not exceeded anything.
    if (by === 'fallback' && remaining === null) return this.#counted(this.#refused('undecided', retryAfterNs), request)
    return this.#counted(this.#over(retryAfterNs, remaining === null ? null : Math.min(remaining, cost - 1)), request)
  }

  async #wait (key, cost, request, response) {
    const control = new AbortController()
    const leave = () => control.abort()
    response.once('close', leave)
    try {
      const options = { timeout: this.#waitWithin, signal: control.signal }
      if (this.#isShared) {
        const grant = await this.#limiter.acquire(key, cost, { ...options, refundable: this.#keepsGrants })
        return this.#granted(key, grant, grant.remaining, this.#refund(key, grant, response), request, response)
      }
      const limiter = this.#of(key)
      if (!this.#countsInFlight && this.#options.refundWhen !== undefined) {
        return this.#held(key, await limiter.hold(cost, FOREVER, options), request, response)
      }
      const grant = await limiter.acquire(cost, options)
      const end = this.#countsInFlight ? () => limiter.release(cost) : undefined
      return this.#granted(key, grant, limiter.remaining, end, request, response)
    } catch (error) {
      if (control.signal.aborted) return GONE
      return this.#counted(this.#failed(error, key, cost, true), request)
    } finally {
      response.off('close', leave)
    }
  }

  /** Lets a request pass. `end` is called once its response has ended. */
  #granted (key, grant, remaining, end, request, response) {
    // The client may have left before the store replied.
    if (this.#keepsGrants && isOver(response)) {
      this.#limiter.refund(key, grant)
      return GONE
    }
    if (end) atTheEnd(response, end)
    return this.#counted(this.#passed(key, remaining), request)
  }

  /** Returns what brings a grant of a store back at the end of a response, if anything does. */
  #refund (key, grant, response) {
    if (this.#options.refundWhen === undefined) return undefined
    return () => {
      if (this.#isRefunded(response)) this.#limiter.refund(key, grant)
    }
  }

  #isRefunded (response) {
    return wasSent(response) && this.#options.refundWhen(response)
  }

  #passed (key, remaining) {
    return outcome(null, remaining, this.#fields && this.#moreAfter(key, remaining))
  }

  #over (retryAfterNs, remaining) {
    const refusal = new Refusal('over-limit', retryAfterNs, this.#fields?.policy)
    return outcome(refusal, remaining, refusal.retryAfter)
  }

  #refused (reason, retryAfterNs = null) {
    return outcome(new Refusal(reason, retryAfterNs, this.#fields?.policy), null, null)
  }

  /** Returns the outcome of a request whose try or wait has failed. */
  #failed (error, key, cost, hasWaited) {
    if (error instanceof ExceedsCapacity) return this.#refused('too-costly')
    if (error instanceof Full) return this.#refused(hasWaited ? 'too-many-waiting' : 'too-many-keys')
    if (error instanceof Closed) return this.#refused('closed')
    if (error instanceof Unavailable) return this.#refused('undecided', error.retryAfterNs)
    if (error instanceof TooLong || error instanceof Never) {
      if (this.#isShared) return this.#over(error.retryAfterNs ?? null, null)
      const limiter = this.#of(key)
      return this.#over(error.retryAfterNs ?? limiter.peekNs(cost), Math.min(limiter.remaining, cost - 1))
    }
    // The store rejects the request as invalid.
    if (this.#isShared && error instanceof RangeError) return this.#refused('undecided')
    throw error
  }

  /** Returns the milliseconds until more than what remains is free, `null` if never or unknown. */
  #moreAfter (key, remaining) {
    // The store has not said, and to ask is another request.
    if (this.#isShared) return null
    const ns = this.#isKeyed ? this.#raw.peek(key, remaining + 1) : this.#raw.peek(remaining + 1)
    // It has no answer for more than there ever is.
    return ns >= 0 ? ns / 1e6 : null
  }

  #of (key) {
    return this.#isKeyed ? this.#limiter.limiter(key) : this.#limiter
  }

  #counted (decided, request) {
    const { refusal } = decided
    if (refusal === null) {
      this.counts.passed++
    } else {
      this.counts[refusal.reason]++
      this.#options.onRefused?.(refusal, request)
    }
    return decided
  }
}

function atTheEnd (response, run) {
  const end = () => {
    try {
      run()
    } catch (error) {
      // A limit that has been closed needs nothing back.
      if (!(error instanceof RateLimitError)) throw error
    }
  }
  // The client may have left before its turn came.
  if (isOver(response)) end()
  else response.once('close', end)
}

// A response of HTTP/2 is neither closed nor destroyed, but its stream is. It is also finished where
// its client has left before it was ended.
function isOver (response) {
  return response.closed || response.destroyed || response.stream?.destroyed === true
}

function wasSent (response) {
  return response.writableEnded && response.writableFinished
}

/** Returns the fields of what is announced: as given, or as the limit is. */
function fieldsOf (headers, numbers) {
  const announced = announcedOf(headers)
  const { quota = numbers?.quota, windowNs = numbers?.windowNs, unit = numbers?.unit } = announced
  if (quota === undefined) {
    if (headers === undefined) return undefined
    throw new TypeError('headers of a limiter that is given needs a quota, as the limiter does not tell its own')
  }
  return new Fields({ ...announced, quota, windowNs, unit })
}

/** Returns the quota of a limit, and the time in which it comes back, by trying it out. */
function numbersOf (limit) {
  const clock = new ManualClock()
  const limiter = new Limiter(limit, { clock })
  const quota = limiter.remaining
  let windowNs
  // Once more from there on, as a window of a grid may have begun before the clock.
  for (let each = 0; each < 2; each++) {
    windowNs = limiter.check(quota).resetAfterNs
    if (windowNs === null) break
    clock.advance(`${windowNs}ns`)
  }
  const countsInFlight = limiter.release(0)
  return { quota, windowNs: windowNs || undefined, unit: countsInFlight ? 'concurrent-requests' : undefined, countsInFlight }
}

module.exports = { CONTENT_TYPE, GONE, Gate }
