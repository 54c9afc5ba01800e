// The waits of this environment, which is the main thread or a worker.
//
// The compiled module calls `deliver` when waits may have ended, once for all of them. Their
// promises are resolved in order, so that their callers go on in order.
'use strict'

const { setInterval } = require('node:timers')

const { typed } = require('./errors.cjs')
const native = require('./native.cjs')

const waits = new Map()
let hub
/** A timer that does nothing: while it is referenced, the process stays. */
let keeper
let keeping = 0

/** The waits of one limiter: their number, and if they keep the process alive. */
class Waiting {
  #count = 0
  #keeps = true

  set keeps (keeps) {
    if (keeps === this.#keeps) return
    keep(keeps ? this.#count : -this.#count)
    this.#keeps = keeps
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

/** Takes permits of a limiter or waits for them, and calls one of the functions, now or later. */
function begin (limiter, permits, { timeoutNs, signal, waiting }, resolve, reject) {
  if (signal?.aborted) return reject(signal.reason)
  hub ??= new native.Hub(deliver)
  let begun
  try {
    begun = hub.begin(limiter, permits, timeoutNs)
  } catch (error) {
    return reject(typed(error))
  }
  if (typeof begun !== 'number') return resolve(begun)
  const wait = { resolve, reject, signal, waiting, onAbort: undefined }
  if (signal) {
    wait.onAbort = () => {
      if (!hub.cancel(begun)) return
      end(begun, wait)
      reject(signal.reason)
    }
    signal.addEventListener('abort', wait.onAbort, { once: true })
  }
  waits.set(begun, wait)
  waiting.add(1)
}

function end (id, wait) {
  waits.delete(id)
  wait.waiting.add(-1)
  if (wait.onAbort) wait.signal.removeEventListener('abort', wait.onAbort)
}

/** Ends the waits that have ended, and returns their number. */
function deliver () {
  if (!hub) return 0
  const { ids, ends } = hub.drain()
  for (let at = 0; at < ids.length; at++) {
    const wait = waits.get(ids[at])
    const result = ends[at]
    end(ids[at], wait)
    if (result instanceof native.Grant) wait.resolve(result)
    else wait.reject(typed(result))
  }
  return ids.length
}

module.exports = { Waiting, begin, deliver }
