// A limit for each key.
'use strict'

const { attached, limitsOf, optionsOf, permitsOf, spanNs } = require('./arguments.cjs')
const { nativeOf } = require('./clock.cjs')
const { Decision, Hold, retryAfterOf } = require('./decision.cjs')
const { call, milliseconds } = require('./errors.cjs')
const { Grant, lastGrant, lastNumbers, scratch } = require('./grant.cjs')
const { Limiter, Made } = require('./limiter.cjs')
const native = require('./native.cjs')
const { show, showsItsGetters } = require('./show.cjs')

const OPTIONS = ['clock', 'maxBytes', 'maxKeys', 'whenFull']
const MAX_KEYS = 2 ** 30
const WHEN_FULL = ['share', 'refuse', 'admit']

/** Returns the raw functions of a table, which answer with numbers. */
let rawOf

class Keyed {
  #native
  #id
  #try
  #check
  #peek

  static {
    rawOf = (keyed) => ({
      attempt: keyed.#try,
      pass: keyed.#native.fastPass(scratch.buffer),
      peek: keyed.#peek
    })
  }

  constructor (limit, options) {
    const { clock, maxBytes, maxKeys, whenFull = 'share' } = optionsOf(options, OPTIONS)
    for (const [name, value, most] of [['maxKeys', maxKeys, MAX_KEYS], ['maxBytes', maxBytes, Number.MAX_SAFE_INTEGER]]) {
      if (value !== undefined && !(Number.isInteger(value) && value >= 1 && value <= most)) {
        throw new RangeError(`${name} is ${show(value)}; must be a whole number from 1 to ${most}`)
      }
    }
    if (!WHEN_FULL.includes(whenFull)) {
      throw new TypeError(`whenFull is ${show(whenFull)}; must be "share", "refuse" or "admit"`)
    }
    const limits = limitsOf(limit)
    this.#native = call(() => new native.Keyed(limits, nativeOf(clock), maxKeys, maxBytes, WHEN_FULL.indexOf(whenFull)))
    this.#id = this.#native.id()
    this.#try = this.#native.fastTry(scratch.buffer)
    this.#check = this.#native.fastCheck(scratch.buffer)
    this.#peek = this.#native.fastPeek()
  }

  tryAcquire (key, permits) {
    attached(this, 'tryAcquire')
    const answer = permits === undefined ? this.#try(key) : this.#try(key, permits)
    // Not NaN: it was decided.
    if (answer === answer) return answer >= 0 // eslint-disable-line no-self-compare
    if (typeof key !== 'string') return this.tryAcquire(keyOf(key), permits)
    const number = permitsOf(permits)
    return call(() => this.#native.attempt(key, number)) !== null
  }

  check (key, permits) {
    attached(this, 'check')
    const [text, number] = [keyOf(key), permitsOf(permits)]
    const answer = this.#check(text, number)
    if (answer >= 0) {
      const { remaining, resetAfterNs } = lastNumbers()
      return new Decision(lastGrant(this.#id, text), null, remaining, resetAfterNs)
    }
    if (answer < 0) {
      const { remaining, resetAfterNs } = lastNumbers()
      const peekNs = () => call(() => this.#native.peek(text, number))
      return new Decision(null, retryAfterOf(answer, peekNs), remaining, resetAfterNs)
    }
    const words = call(() => this.#native.attempt(text, number))
    // Another thread has changed the table since.
    if (words === null) return this.check(text, number)
    return new Decision(new Grant(words, this.#id, text), null, this.remaining(text), null)
  }

  peek (key, permits) {
    const [text, number] = [keyOf(key), permitsOf(permits)]
    const answer = this.#peek(text, number)
    if (answer >= 0) return answer / 1e6
    if (answer < 0) return null
    const ns = call(() => this.#native.peek(text, number))
    return ns === null ? null : milliseconds(ns)
  }

  remaining (key) {
    return call(() => this.#native.remaining(keyOf(key)))
  }

  tryHold (key, permits, ttl) {
    const [text, number, ttlNs] = [keyOf(key), permitsOf(permits), spanNs(ttl, 'ttl')]
    return new Hold(call(() => this.#native.tryHold(text, number, ttlNs)))
  }

  reset (key) {
    return call(() => this.#native.reset(keyOf(key)))
  }

  limiter (key) {
    const text = keyOf(key)
    return new Limiter(new Made(call(() => this.#native.limiter(text)), this.#id, text))
  }

  reconfigure (limit) {
    const limits = limitsOf(limit)
    call(() => this.#native.reconfigure(limits))
  }

  get size () {
    return this.#native.size()
  }

  get overflows () {
    return this.#native.overflows()
  }
}

/** Returns a key as text: 7 and "7" are one key. */
function keyOf (key) {
  if (typeof key === 'string') return key
  if ((typeof key === 'number' && !Number.isNaN(key)) || typeof key === 'bigint') return String(key)
  throw new TypeError(`the key is ${show(key)}; must be text or a number`)
}

showsItsGetters(Keyed, ['size', 'overflows'])

module.exports = { Keyed, rawOf }
