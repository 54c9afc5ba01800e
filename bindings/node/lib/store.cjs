// Limits that several processes keep together in a store.
'use strict'

const process = require('node:process')

const { onAbort } = require('./abort.cjs')
const { limitsOf, optionalSpanNs, optionsOf, permitsOf, signalOf, spanNs, stringOf } = require('./arguments.cjs')
const { call, milliseconds, typed } = require('./errors.cjs')
const { OTHER_LIMITER, notLeft, scratch } = require('./grant.cjs')
const native = require('./native.cjs')
const { show, showsItsGetters } = require('./show.cjs')
const { keep } = require('./waits.cjs')

/** The names of who decided, at the places of the compiled module's numbers. */
const BY = ['store', 'lease', 'fallback', 'none']
const OPTIONS = [
  'budget', 'guard', 'lease', 'leasePermits', 'mode', 'name', 'prefix', 'processes', 'quarantine', 'whenGone'
]
const READY_MS = 5000
/** The word for a number of remaining permits that is not known. */
const UNKNOWN = 2n ** 64n - 1n

const pending = new Map()
let calls
/** Ends the next call whose reply has come. */
let next

/** Brings back permits of a grant, each once. */
let refunded

class SharedGrant {
  #native
  #of
  #returned = 0

  static {
    refunded = (grant, limit, key, permits, refund) => {
      if (grant === null || typeof grant !== 'object' || !(#native in grant)) {
        throw new TypeError(`the grant is ${show(grant)}; must be a SharedGrant`)
      }
      if (grant.#native === null) {
        throw new TypeError('only a grant of a call with { refundable: true } can be refunded')
      }
      if (grant.#of.limit !== limit || grant.#of.key !== key) throw new RangeError(OTHER_LIMITER)
      const left = grant.permits - grant.#returned
      if (permits > left) throw new RangeError(notLeft(permits, left))
      call(() => refund(grant.#native))
      grant.#returned += permits
    }
  }

  constructor (permits, remaining, native, of) {
    this.permits = permits
    this.remaining = remaining
    this.#native = native
    this.#of = of
  }
}

class SharedDecision {
  constructor (grant, remaining, retryAfterNs, by) {
    this.granted = grant !== null
    this.grant = grant
    this.remaining = remaining
    this.retryAfterNs = retryAfterNs
    this.by = by
  }

  get retryAfter () {
    return this.retryAfterNs === null ? null : milliseconds(this.retryAfterNs)
  }
}

/** Returns the mode of a `Shared`, and its limit as it was given; `undefined` if it has several. */
let configOf
/** Warns if a limit of requests counts together with one that was made of another object. */
let warnOfAnother

class Shared {
  static {
    configOf = (shared) => {
      const [limit, ...more] = [shared.#limit].flat()
      const isOne = more.length === 0 && !(typeof limit === 'string' && limit.includes(';'))
      return { limit: isOne ? limit : undefined, isLeased: shared.#isLeased }
    }

    /** References to those of middlewares. */
    const others = new Set()
    warnOfAnother = (shared) => {
      let isAnother = false
      for (const other of others) {
        const each = other.deref()
        if (each === undefined) others.delete(other)
        else if (each === shared) return
        else isAnother ||= shared.#native.countsWith(each.#native)
      }
      others.add(new WeakRef(shared))
      if (!isAnother) return
      process.emitWarning(
        `the limit ${show(shared.#limit)} of a middleware counts together with another Shared of the same store and ` +
        'limit, as neither has a name; give each a name of its own, or both the same Shared',
        { code: 'RATEGATE_SHARED_TWICE' }
      )
    }
  }

  #native
  #limit
  #isLeased

  constructor (url, limit, options) {
    if (typeof url !== 'string') throw new TypeError(`the url is ${typeof url}; must be text`)
    const given = optionsOf(options, OPTIONS)
    const mode = oneOf(given.mode, 'mode', ['exact', 'leased'])
    const whenGone = oneOf(given.whenGone, 'whenGone', ['deny', 'allow', 'local'])
    for (const name of ['lease', 'leasePermits', 'guard']) {
      if (given[name] !== undefined && mode !== 'leased') throw new TypeError(`${name} is of mode "leased"`)
    }
    if (given.processes !== undefined && whenGone !== 'local') {
      throw new TypeError('processes is of whenGone "local"')
    }
    this.#native = call(() => new native.Shared(url, limitsOf(limit), {
      isLeased: mode === 'leased',
      whenGone,
      processes: given.processes,
      name: stringOf(given.name, 'name'),
      prefix: stringOf(given.prefix, 'prefix'),
      budget: optionalSpanNs(given.budget, 'budget'),
      lease: optionalSpanNs(given.lease, 'lease'),
      leasePermits: given.leasePermits === undefined ? undefined : permitsOf(given.leasePermits),
      guard: booleanOf(given.guard, 'guard'),
      quarantine: booleanOf(given.quarantine, 'quarantine')
    }))
    this.#limit = limit
    this.#isLeased = mode === 'leased'
  }

  tryAcquire (key, permits) {
    return this.check(key, permits).then(({ granted }) => granted)
  }

  check (key, permits, options) {
    return new Promise((resolve, reject) => {
      const { refundable } = optionsOf(options, ['refundable'])
      const [text, number, keeps] = [keyOf(key), permitsOf(permits), booleanOf(refundable, 'refundable')]
      const of = { limit: this.#native, key: text, permits: number }
      begin((calls) => calls.check(this.#native, text, number, keeps), of, undefined, resolve, reject)
    })
  }

  acquire (key, permits, options) {
    return new Promise((resolve, reject) => {
      const { refundable, signal, timeout } = optionsOf(options, ['refundable', 'signal', 'timeout'])
      const [text, number, keeps] = [keyOf(key), permitsOf(permits), booleanOf(refundable, 'refundable')]
      const timeoutNs = optionalSpanNs(timeout, 'timeout')
      const granted = (decision) => resolve(decision.grant)
      const start = (calls) => calls.acquire(this.#native, text, number, timeoutNs, keeps)
      const of = { limit: this.#native, key: text, permits: number }
      begin(start, of, signalOf(signal), granted, reject)
    })
  }

  remaining (key) {
    return new Promise((resolve, reject) => {
      const text = keyOf(key)
      const peeked = (decision) => resolve(decision.remaining)
      begin((calls) => calls.peek(this.#native, text), { permits: 0 }, undefined, peeked, reject)
    })
  }

  refund (key, grant, permits = grant?.permits) {
    const [text, number] = [keyOf(key), permitsOf(permits)]
    refunded(grant, this.#native, text, number, (own) => this.#native.refund(text, number, own))
  }

  async ready (timeout = READY_MS) {
    const timeoutNs = spanNs(timeout, 'timeout')
    const failure = await call(() => this.#native.ready(timeoutNs))
    if (failure) throw typed(failure)
  }

  waiting (key) {
    const text = keyOf(key)
    return call(() => this.#native.waiting(text))
  }

  get status () {
    return this.#native.status()
  }

  get lastFailure () {
    return this.#native.lastFailure() ?? null
  }

  get counts () {
    return this.#native.counts()
  }
}

/** Begins a call of a limit, a key and permits, and calls one of the functions with its decision, now or later. */
function begin (start, of, signal, resolve, reject) {
  if (signal?.aborted) return reject(signal.reason)
  if (!calls) {
    calls = new native.StoreCalls(deliver)
    next = calls.fastNext(scratch.buffer)
  }
  let begun
  try {
    begun = start(calls)
  } catch (error) {
    return reject(typed(error))
  }
  if (begun < 0) return resolve(granted(of.permits, -begun - 1, 1))
  if (begun === 0) return settle(calls.last(), of, resolve, reject)
  const wait = { of, resolve, reject, offAbort: undefined }
  if (signal) {
    wait.offAbort = onAbort(signal, () => {
      if (!calls.cancel(begun)) return
      end(begun, wait)
      reject(signal.reason)
    })
  }
  pending.set(begun, wait)
  keep(1)
}

function end (id, wait) {
  pending.delete(id)
  keep(-1)
  wait.offAbort?.()
}

/** Ends the calls whose replies have come, in order. */
function deliver () {
  for (let id = next(); id; id = next()) {
    const wait = pending.get(Math.abs(id))
    end(Math.abs(id), wait)
    if (id < 0) settle(calls.last(), wait.of, wait.resolve, wait.reject)
    else wait.resolve(granted(wait.of.permits, scratch[0] === UNKNOWN ? null : Number(scratch[0]), Number(scratch[1])))
  }
}

/** Returns the decision of a plain grant. */
function granted (permits, remaining, by) {
  return new SharedDecision(new SharedGrant(permits, remaining, null, null), remaining, null, BY[by])
}

function settle (decided, of, resolve, reject) {
  if (decided.failure) return reject(typed(decided.failure))
  const remaining = decided.remaining ?? null
  const grant = decided.granted ? new SharedGrant(of.permits, remaining, decided.grant ?? null, of) : null
  resolve(new SharedDecision(grant, remaining, decided.retryAfterNs ?? null, BY[decided.by]))
}

/** Returns a key as text: 7 and "7" are one key. */
function keyOf (key) {
  if (typeof key === 'string') return key
  if (key === undefined) return ''
  if ((typeof key === 'number' && !Number.isNaN(key)) || typeof key === 'bigint') return String(key)
  throw new TypeError(`the key is ${show(key)}; must be text or a number`)
}

function oneOf (value, name, known) {
  if (value === undefined) return known[0]
  if (known.includes(value)) return value
  throw new TypeError(`${name} is ${show(value)}; must be ${known.map((each) => `"${each}"`).join(' or ')}`)
}

function booleanOf (value, name) {
  if (value === undefined) return false
  if (typeof value === 'boolean') return value
  throw new TypeError(`${name} is ${show(value)}; must be true or false`)
}

showsItsGetters(Shared, ['status', 'lastFailure', 'counts'])

module.exports = { Shared, SharedDecision, SharedGrant, configOf, warnOfAnother }
