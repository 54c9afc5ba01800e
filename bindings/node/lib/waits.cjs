// The waits of this environment, which is the main thread or a worker.
//
// The compiled module calls `look` when waits may have ended, of limiters or of other sources. Permits are taken for one caller at a
// time, in order, and all that it does at once is done before the next: so permits count from the
// instant at which their caller goes on.
'use strict'

const { nextTick } = require('node:process')
const { setImmediate, setInterval } = require('node:timers')

const { onAbort } = require('./abort.cjs')
const { Hold } = require('./decision.cjs')
const { typed } = require('./errors.cjs')
const { Grant, lastGrant, scratch } = require('./grant.cjs')
const native = require('./native.cjs')

/** The number of waits that end in a round of the loop, so that others of its work get a turn. */
const AT_ONCE = 64

const waits = new Map()
/** Functions that each end one wait that is over, and return false if none is. */
const sources = []
let hub
let next
/** The number of waits that have ended. */
let ended = 0
let isLooking = false
/** A timer that does nothing: while it is referenced, the process stays. */
let keeper
let keeping = 0

/** The waits of one limiter. */
class Waits {
  #limiter
  #id
  #key
  #begin
  #count = 0
  #keeps = true

  constructor (limiter, id, key) {
    this.#limiter = limiter
    this.#id = id
    this.#key = key
  }

  /** Whether they keep the process alive. */
  set keeps (keeps) {
    if (keeps === this.#keeps) return
    keep(keeps ? this.#count : -this.#count)
    this.#keeps = keeps
  }

  /** Takes permits, or holds them for a time, now or later, and calls one of the functions then. */
  begin (permits, timeoutNs, signal, resolve, reject, ttlNs) {
    if (signal?.aborted) return reject(signal.reason)
    if (hub === undefined) {
      hub = new native.Hub(look)
      next = hub.fastNext(scratch.buffer)
      addSource(endOfHub)
    }
    this.#begin ??= hub.fastBegin(this.#limiter, scratch.buffer)
    let begun = timeoutNs === undefined && ttlNs === undefined ? this.#begin(permits) : NaN
    if (begun === 0) return resolve(lastGrant(this.#id, this.#key))
    try {
      if (ttlNs !== undefined) begun = hub.beginHold(this.#limiter, permits, ttlNs, timeoutNs)
      else if (Number.isNaN(begun)) begun = hub.begin(this.#limiter, permits, timeoutNs)
    } catch (error) {
      return reject(typed(error))
    }
    if (begun === 0) return resolve(new Hold(hub.held()))
    if (typeof begun !== 'number') return resolve(new Grant(begun, this.#id, this.#key))
    const wait = { resolve, reject, waits: this, offAbort: undefined }
    if (signal) {
      wait.offAbort = onAbort(signal, () => {
        if (!hub.cancel(begun)) return
        end(begun, wait)
        reject(signal.reason)
      })
    }
    waits.set(begun, wait)
    this.add(1)
    look()
  }

  lastGrant () {
    return lastGrant(this.#id, this.#key)
  }

  add (count) {
    this.#count += count
    if (this.#keeps) keep(count)
  }
}

function keep (count) {
  const before = keeping
  keeping += count
  if (before === 0 && keeping > 0) {
    keeper ??= setInterval(() => {}, 2 ** 30)
    keeper.ref()
  } else if (before > 0 && keeping === 0) {
    keeper.unref()
  }
}

function end (id, wait) {
  waits.delete(id)
  wait.waits.add(-1)
  wait.offAbort?.()
}

function addSource (source) {
  sources.push(source)
}

/** Has the waits end that are over, once what runs now is done. */
function look () {
  if (isLooking) return
  isLooking = true
  nextTick(endNext)
}

function endNext () {
  for (let tried = 0; tried < sources.length; tried++) {
    // In turns: one source may never run dry.
    if (!sources[(ended + tried) % sources.length]()) continue
    ended++
    if (ended % AT_ONCE === 0) setImmediate(endNext)
    else queueMicrotask(lookAgain)
    return
  }
  isLooking = false
}

function endOfHub () {
  const id = next()
  if (id === 0) return false
  const wait = waits.get(Math.abs(id))
  end(Math.abs(id), wait)
  if (id > 0) wait.resolve(wait.waits.lastGrant())
  else {
    const failure = hub.failure()
    if (failure) wait.reject(typed(failure))
    else wait.resolve(new Hold(hub.held()))
  }
  return true
}

/** A tick that begins in a microtask is behind all that the caller does at once, however many
 * promises it goes through. */
function lookAgain () {
  nextTick(endNext)
}

module.exports = { Waits, addSource, keep, look, ended: () => ended }
