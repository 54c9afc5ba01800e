// Limiters.
'use strict'

const { isUint8Array } = require('node:util/types')

const {
  attached,
  functionOf,
  limitsOf,
  optionalSpanNs,
  optionsOf,
  permitsOf,
  signalOf,
  spanNs,
  stringOf
} = require('./arguments.cjs')
const { nativeOf } = require('./clock.cjs')
const { Decision, Hold, Reservation, retryAfterOf } = require('./decision.cjs')
const { Closed, call, milliseconds } = require('./errors.cjs')
const { Grant, ended, lastGrant, lastNumbers, scratch } = require('./grant.cjs')
const { Local } = require('./local.cjs')
const native = require('./native.cjs')
const { show, showsItsGetters } = require('./show.cjs')
const { Waits } = require('./waits.cjs')

const OPTIONS = ['clock', 'debt', 'maxDebt', 'maxWaiting', 'name', 'shared']
const DEBTS = ['forgotten', 'carried']
const OUTCOMES = ['served', 'dropped', 'ignored']

/** What a table has for a key. Copies of the package in one process may share their module's classes. */
class Made {
  constructor (limiter, id, key) {
    this.limiter = limiter
    this.id = id
    this.key = key
  }
}

/** The state that a limiter continues from, in place of a new one. */
class Saved {
  constructor (limit, bytes, maxDowntime) {
    if (!isUint8Array(bytes)) {
      throw new TypeError(`saved is ${show(bytes)}; must be the Uint8Array of save()`)
    }
    this.limit = limit
    this.bytes = bytes
    this.maxDowntime = optionalSpanNs(maxDowntime, 'maxDowntime')
  }
}

/** Returns the raw functions of a limiter, which answer with numbers. */
let rawOf
/** Returns `true` if the limit moves by the outcomes of operations. */
let followsOutcomes

class Limiter {
  static {
    followsOutcomes = (limiter) => limiter.#native.followsOutcomes()
    rawOf = (limiter) => ({
      attempt: limiter.#try,
      pass: limiter.#native.fastPass(scratch.buffer),
      peek: limiter.#peek
    })
  }

  #native
  #id
  #key
  #try
  #check
  #peek
  #waits
  /** Set once it is known that the limit counts operations in flight, or that it does not. */
  #countsInFlight

  constructor (limit, options) {
    const { clock, debt, maxDebt, maxWaiting, name, shared } = optionsOf(options, OPTIONS)
    const restored = limit instanceof Saved ? limit : undefined
    if (shared !== undefined && clock !== undefined) {
      throw new TypeError('a shared limiter has real time, so it takes no clock')
    }
    if (shared !== undefined && restored !== undefined) {
      throw new TypeError('a restored limiter is not shared: another worker may have made it anew')
    }
    if (debt !== undefined && !DEBTS.includes(debt)) {
      throw new TypeError(`debt is ${show(debt)}; must be "forgotten" or "carried"`)
    }
    this.#native = limit instanceof Made
      ? limit.limiter
      : call(() => new native.Limiter(limitsOf(restored ? restored.limit : limit), nativeOf(clock), {
        name: stringOf(name, 'name'),
        shared: stringOf(shared, 'shared'),
        maxDebt: optionalSpanNs(maxDebt, 'maxDebt'),
        isDebtCarried: debt === 'carried',
        maxWaiting: maxWaiting === undefined ? undefined : permitsOf(maxWaiting, 'maxWaiting'),
        maxDowntime: restored?.maxDowntime
      }, restored?.bytes))
    this.#id = limit instanceof Made ? limit.id : this.#native.id()
    this.#key = limit instanceof Made ? limit.key : undefined
    this.#try = this.#native.fastTry(scratch.buffer)
    this.#check = this.#native.fastCheck(scratch.buffer)
    this.#peek = this.#native.fastPeek()
    this.#waits = new Waits(this.#native, this.#id, this.#key)
  }

  /** Makes a limiter that continues from what `save` returned. */
  static restore (limit, saved, options) {
    const { maxDowntime, ...rest } = optionsOf(options, ['maxDowntime', ...OPTIONS])
    return new this(new Saved(limit, saved, maxDowntime), rest)
  }

  tryAcquire (permits) {
    attached(this, 'tryAcquire')
    const answer = permits === undefined ? this.#try() : this.#try(permits)
    // Not NaN: it was decided.
    if (answer === answer) return answer >= 0 // eslint-disable-line no-self-compare
    const number = permitsOf(permits)
    return call(() => this.#native.attempt(number)) !== null
  }

  check (permits) {
    attached(this, 'check')
    const number = permitsOf(permits)
    const answer = this.#check(number)
    if (answer >= 0) {
      const { remaining, resetAfterNs } = lastNumbers()
      return new Decision(lastGrant(this.#id, this.#key), null, remaining, resetAfterNs)
    }
    if (answer < 0) {
      const { remaining, resetAfterNs } = lastNumbers()
      return new Decision(null, retryAfterOf(answer, () => this.peekNs(number)), remaining, resetAfterNs)
    }
    const words = call(() => this.#native.attempt(number))
    // Another thread has changed the limiter since.
    if (words === null) return this.check(number)
    return new Decision(new Grant(words, this.#id, this.#key), null, this.remaining, null)
  }

  peek (permits) {
    const number = permitsOf(permits)
    const answer = this.#peek(number)
    if (answer >= 0) return answer / 1e6
    if (answer < 0) return null
    const ns = this.peekNs(number)
    return ns === null ? null : milliseconds(ns)
  }

  peekNs (permits) {
    const number = permitsOf(permits)
    return call(() => this.#native.peek(number))
  }

  acquire (permits, options) {
    return new Promise((resolve, reject) => {
      attached(this, 'acquire')
      const number = permitsOf(permits)
      if (options === undefined) return this.#waits.begin(number, undefined, undefined, resolve, reject)
      const { signal, timeout } = optionsOf(options, ['signal', 'timeout'])
      const timeoutNs = optionalSpanNs(timeout, 'timeout')
      this.#waits.begin(number, timeoutNs, signalOf(signal), resolve, reject)
    })
  }

  async schedule (run, ...args) {
    attached(this, 'schedule')
    functionOf(run, 'the function to schedule')
    await this.acquire()
    try {
      return await run(...args)
    } finally {
      this.#end(1)
    }
  }

  wrap (run, options) {
    functionOf(run, 'the function to wrap')
    const { permits, signal } = optionsOf(options, ['permits', 'signal'])
    if (permits !== undefined) functionOf(permits, 'permits')
    signalOf(signal)
    const limiter = this
    const wrapped = async function (...args) {
      const number = permitsOf(permits?.(...args))
      await limiter.acquire(number, { signal })
      try {
        return await run.apply(this, args)
      } finally {
        limiter.#end(number)
      }
    }
    return Object.defineProperty(wrapped, 'name', { value: run.name, configurable: true })
  }

  /** Ends operations in flight, where the limit counts any. */
  #end (permits) {
    if (this.#countsInFlight === false) return
    try {
      this.#countsInFlight = this.release(permits)
    } catch (error) {
      // The operation's own result counts: a limit that has been closed meanwhile needs nothing.
      if (!(error instanceof Closed)) throw error
    }
  }

  async * [Symbol.asyncIterator] () {
    for (;;) yield await this.acquire()
  }

  reserve (permits, options) {
    const { timeout } = optionsOf(options, ['timeout'])
    const number = permitsOf(permits)
    const timeoutNs = optionalSpanNs(timeout, 'timeout')
    return new Reservation(call(() => this.#native.reserve(number, timeoutNs)), this.#id, this.#key)
  }

  tryHold (permits, ttl) {
    const number = permitsOf(permits)
    const ttlNs = spanNs(ttl, 'ttl')
    return new Hold(call(() => this.#native.tryHold(number, ttlNs)))
  }

  hold (permits, ttl, options) {
    return new Promise((resolve, reject) => {
      attached(this, 'hold')
      const number = permitsOf(permits)
      const ttlNs = spanNs(ttl, 'ttl')
      const { signal, timeout } = optionsOf(options, ['signal', 'timeout'])
      const timeoutNs = optionalSpanNs(timeout, 'timeout')
      this.#waits.begin(number, timeoutNs, signalOf(signal), resolve, reject, ttlNs)
    })
  }

  local (batch = 64) {
    return new Local(this, batch)
  }

  charge (permits) {
    const number = permitsOf(permits)
    return call(() => this.#native.charge(number))
  }

  release (permits) {
    const number = permitsOf(permits)
    return call(() => this.#native.release(number))
  }

  releaseWithOutcome (grant, outcome) {
    if (!OUTCOMES.includes(outcome)) {
      throw new TypeError(`outcome is ${show(outcome)}; must be "served", "dropped" or "ignored"`)
    }
    return ended(grant, this.#id, this.#key, (words) => this.#native.releaseWithOutcome(words, outcome))
  }

  refill (permits) {
    const number = permitsOf(permits)
    return call(() => this.#native.refill(number))
  }

  reset () {
    return call(() => this.#native.reset())
  }

  save () {
    return call(() => this.#native.save())
  }

  boundQueue (bounds) {
    const { waiters, permits, whenFull = 'refuse' } = optionsOf(bounds, ['waiters', 'permits', 'whenFull'])
    if (!['refuse', 'evict-newest'].includes(whenFull)) {
      throw new TypeError(`whenFull is ${show(whenFull)}; must be "refuse" or "evict-newest"`)
    }
    const numbers = Object.entries({ waiters, permits }).map(([name, number]) => number === undefined ? undefined : permitsOf(number, name))
    call(() => this.#native.boundQueue(...numbers, whenFull === 'evict-newest'))
  }

  reconfigure (limit) {
    const limits = limitsOf(limit)
    call(() => this.#native.reconfigure(limits))
  }

  close () {
    this.#native.close()
  }

  ref () {
    this.#waits.keeps = true
    return this
  }

  unref () {
    this.#waits.keeps = false
    return this
  }

  get remaining () {
    return call(() => this.#native.remaining())
  }

  get maxInFlight () {
    return call(() => this.#native.maxInFlight())
  }

  get waiting () {
    return call(() => this.#native.waiting())
  }

  get closed () {
    return this.#native.isClosed()
  }

  get nowNs () {
    return this.#native.nowNs()
  }
}

showsItsGetters(Limiter, ['remaining', 'waiting', 'maxInFlight', 'closed', 'nowNs'])

module.exports = { Limiter, Made, followsOutcomes, rawOf }
