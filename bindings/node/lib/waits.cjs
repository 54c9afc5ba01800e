// The waits of this environment, which is the main thread or a worker.
//
// The compiled module calls `deliver` when waits may have ended, once for all of them. Their
// promises are resolved in order, so that their callers go on in order.
'use strict'

const { setInterval } = require('node:timers')

const { typed } = require('./errors.cjs')
const { Grant, grantAt, lastGrant, scratch } = require('./grant.cjs')
const native = require('./native.cjs')

const waits = new Map()
let hub
/** A timer that does nothing: while it is referenced, the process stays. */
let keeper
let keeping = 0

/** The waits of one limiter. */
class Waits {
  #limiter
  #begin
  #count = 0
  #keeps = true

  constructor (limiter) {
    this.#limiter = limiter
  }

  /** Whether they keep the process alive. */
  set keeps (keeps) {
    if (keeps === this.#keeps) return
    keep(keeps ? this.#count : -this.#count)
    this.#keeps = keeps
  }

  /** Takes permits or waits for them, and calls one of the functions, now or later. */
  begin (permits, timeoutNs, signal, resolve, reject) {
    if (signal?.aborted) return reject(signal.reason)
    hub ??= new native.Hub(deliver)
    this.#begin ??= hub.fastBegin(this.#limiter, scratch.buffer)
    let begun = timeoutNs === undefined ? this.#begin(permits) : NaN
    if (begun === 0) return resolve(lastGrant())
    try {
      if (Number.isNaN(begun)) begun = hub.begin(this.#limiter, permits, timeoutNs)
    } catch (error) {
      return reject(typed(error))
    }
    if (typeof begun !== 'number') return resolve(new Grant(begun))
    const wait = { resolve, reject, signal, waits: this, onAbort: undefined }
    if (signal) {
      wait.onAbort = () => {
        if (!hub.cancel(begun)) return
        end(begun, wait)
        reject(signal.reason)
      }
      signal.addEventListener('abort', wait.onAbort, { once: true })
    }
    waits.set(begun, wait)
    this.add(1)
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
  if (wait.onAbort) wait.signal.removeEventListener('abort', wait.onAbort)
}

/** Ends the waits that have ended, and returns their number. */
function deliver () {
  if (!hub) return 0
  const { ids, words, failures } = hub.drain()
  let failed = 0
  for (let at = 0; at < ids.length; at++) {
    const wait = waits.get(ids[at])
    end(ids[at], wait)
    if (failures[failed]?.at === at) wait.reject(typed(failures[failed++].failure))
    else wait.resolve(grantAt(words, at))
  }
  return ids.length
}

module.exports = { Waits, deliver }
