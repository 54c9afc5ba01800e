// Loads whose operations are released when they are due.
'use strict'

const { onAbort } = require('./abort.cjs')
const { optionsOf, signalOf } = require('./arguments.cjs')
const { nativeOf } = require('./clock.cjs')
const { call, milliseconds } = require('./errors.cjs')
const native = require('./native.cjs')
const { plain, show } = require('./show.cjs')
const { addSource, keep, look } = require('./waits.cjs')

/** The calls that wait in the compiled module, by id. */
const waits = new Map()
/** The calls whose turn has come, in order: those that were woken, and new ones. */
const due = []
let calls

class Release {
  constructor (number, scheduledAtNs, releasedAtNs) {
    this.number = number
    this.scheduledAtNs = scheduledAtNs
    this.releasedAtNs = releasedAtNs
  }

  get scheduledAt () {
    return milliseconds(this.scheduledAtNs)
  }

  get releasedAt () {
    return milliseconds(this.releasedAtNs)
  }

  get waitNs () {
    return this.releasedAtNs - this.scheduledAtNs
  }

  get wait () {
    return milliseconds(this.waitNs)
  }

  toJSON () {
    const { number, scheduledAtNs, releasedAtNs, waitNs } = this
    return plain({ number, scheduledAtNs, releasedAtNs, waitNs })
  }
}

class OpenLoop {
  #native

  constructor (load, options) {
    if (typeof load !== 'string') {
      throw new TypeError(`the load is ${show(load)}; must be text such as "constant:100/s@1min"`)
    }
    const { clock, part } = optionsOf(options, ['clock', 'part'])
    const [own, parts] = partOf(part)
    this.#native = call(() => new native.OpenLoop(load, own, parts, nativeOf(clock)))
  }

  [Symbol.asyncIterator] () {
    return this
  }

  /** Waits for the next operation, as an iterator does. */
  next (options) {
    return new Promise((resolve, reject) => {
      const signal = signalOf(optionsOf(options, ['signal']).signal)
      if (signal?.aborted) return reject(signal.reason)
      if (calls === undefined) {
        calls = new native.LoadCalls(look)
        addSource(endNext)
      }
      const wait = { load: this.#native, id: 0, resolve, offAbort: undefined }
      if (signal) {
        wait.offAbort = onAbort(signal, () => {
          if (wait.id !== 0) calls.cancel(wait.id)
          end(wait)
          reject(signal.reason)
        })
      }
      keep(1)
      // Not at once: a load that is behind leaves the loop its turns, too.
      due.push(wait)
      look()
    })
  }

  close () {
    this.#native.close()
  }

  get now () {
    return milliseconds(this.nowNs)
  }

  get nowNs () {
    return this.#native.nowNs
  }
}

/** Ends the next call whose operation is due, and which goes on now. Returns false if none is. */
function endNext () {
  for (;;) {
    if (due.length === 0 && !takeWoken()) return false
    const wait = due.shift()
    // It was aborted.
    if (wait.load === undefined) continue
    const isNew = wait.id === 0
    if (isNew) wait.id = calls.begin(wait.load)
    if (isNew ? wait.id !== 0 : !calls.collect(wait.id)) {
      waits.set(wait.id, wait)
      continue
    }
    end(wait)
    const last = calls.last()
    if (last === null) wait.resolve({ value: undefined, done: true })
    else wait.resolve({ value: new Release(last.number, last.scheduledAtNs, last.releasedAtNs), done: false })
    return true
  }
}

function takeWoken () {
  for (const id of calls.woken()) {
    const wait = waits.get(id)
    // Absent if it was aborted after its wake.
    if (wait !== undefined) due.push(wait)
  }
  return due.length > 0
}

function end (wait) {
  waits.delete(wait.id)
  wait.load = undefined
  keep(-1)
  wait.offAbort?.()
}

/** Returns a part and the number of parts: the whole without them. */
function partOf (value) {
  if (value === undefined) return [0, 1]
  if (Array.isArray(value) && value.length === 2 && value.every((each) => typeof each === 'number')) return value
  throw new TypeError(`part is ${show(value)}; must be [part, parts], such as [0, 3] for the first of three`)
}

module.exports = { OpenLoop, Release }
