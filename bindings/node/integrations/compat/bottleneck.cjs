// The names of Bottleneck 2 with the semantics of rategate. The README lists the differences.
'use strict'

const { EventEmitter } = require('node:events')
const { clearTimeout, setTimeout } = require('node:timers')

const { functionOf, optionsOf, permitsOf } = require('../../lib/arguments.cjs')
const { Limiter } = require('../../lib/limiter.cjs')
const { show } = require('../../lib/show.cjs')

const OPTIONS = [
  'id', 'maxConcurrent', 'minTime', 'highWater', 'strategy', 'reservoir', 'reservoirRefreshInterval',
  'reservoirRefreshAmount', 'rejectOnDrop', 'timeout'
]
const OPTIONS_OF_JOBS = ['priority', 'weight', 'expiration', 'id']
const OPTIONS_OF_STOP = ['dropWaitingJobs', 'dropErrorMessage', 'enqueueErrorMessage']
const STRATEGIES = { LEAK: 1, OVERFLOW: 2 }
const DEFAULT_PRIORITY = 5
const MAX_RESERVOIR = 1_000_000_000
/** How long a group keeps a limiter that has no jobs. */
const GROUP_TIMEOUT = 300_000

class BottleneckError extends Error {
  get name () {
    return 'BottleneckError'
  }
}

class Bottleneck {
  static strategy = STRATEGIES
  static BottleneckError = BottleneckError
  static Group
  /** The limits that a job passes, one after the other. */
  #inFlight
  #spacing
  #reservoir
  #hasRefresh
  #settings
  #events = new EventEmitter()
  /** The jobs that wait, oldest first, each with the function that drops it. */
  #waiting = new Map()
  #running = 0
  #executing = 0
  #done = 0
  #stopped
  #next
  #serial = 0

  constructor (options) {
    const settings = optionsOf(options ?? {}, OPTIONS)
    const { maxConcurrent, minTime, highWater, strategy = STRATEGIES.LEAK, reservoir, reservoirRefreshInterval, reservoirRefreshAmount } = settings
    this.id = settings.id ?? '<no-id>'
    if (!Object.values(STRATEGIES).includes(strategy)) {
      throw new TypeError(`strategy is ${show(strategy)}; must be Bottleneck.strategy.LEAK or OVERFLOW`)
    }
    this.#settings = { strategy, highWater: highWater ?? undefined, rejectOnDrop: settings.rejectOnDrop ?? true }
    if (highWater !== undefined && highWater !== null) permitsOf(highWater, 'highWater')
    this.timeout = settings.timeout ?? GROUP_TIMEOUT
    if (maxConcurrent !== undefined && maxConcurrent !== null) {
      this.#inFlight = new Limiter({ policy: 'concurrency', permits: maxConcurrent })
    }
    if (minTime) this.#spacing = new Limiter({ policy: 'gcra', rate: `1/${minTime}ms`, burst: 1 })
    if (reservoir === undefined || reservoir === null) return
    this.#hasRefresh = Boolean(reservoirRefreshInterval)
    if (this.#hasRefresh && reservoirRefreshAmount !== reservoir) {
      throw new RangeError(`reservoir is ${show(reservoir)} and reservoirRefreshAmount ${show(reservoirRefreshAmount)}; must be equal`)
    }
    this.#reservoir = new Limiter(this.#hasRefresh
      ? { policy: 'fixed-window', permits: reservoir, period: reservoirRefreshInterval }
      : { policy: 'backfill-pool', pool: MAX_RESERVOIR })
    if (!this.#hasRefresh) this.#reservoir.refill(permitsOf(reservoir))
  }

  async schedule (...args) {
    const options = typeof args[0] === 'object' && args[0] !== null ? args.shift() : {}
    const [run, ...rest] = args
    functionOf(run, 'the function to schedule')
    const { priority, weight, expiration, id } = optionsOf(options, OPTIONS_OF_JOBS)
    if ((priority ?? DEFAULT_PRIORITY) !== DEFAULT_PRIORITY) {
      throw new TypeError(`priority is ${show(priority)}; jobs start in the order of their calls, so it must be ${DEFAULT_PRIORITY}`)
    }
    return this.#enter({
      run,
      args: rest,
      options: {
        priority: DEFAULT_PRIORITY,
        weight: permitsOf(weight ?? 1),
        expiration,
        id: id ?? `${this.id}-${this.#serial++}`
      }
    })
  }

  wrap (run) {
    const limiter = this
    functionOf(run, 'the function to wrap')
    const wrapped = function (...args) {
      return limiter.schedule((...args) => run.apply(this, args), ...args)
    }
    wrapped.withOptions = (options, ...args) => limiter.schedule(options, run, ...args)
    return wrapped
  }

  /** Runs a function whose last argument is a callback. */
  submit (...args) {
    const options = typeof args[0] === 'object' && args[0] !== null ? [args.shift()] : []
    const callback = functionOf(args.pop(), 'the callback')
    const [run, ...rest] = args
    functionOf(run, 'the function to submit')
    const promised = () => new Promise((resolve, reject) => {
      run(...rest, (error, ...results) => error ? reject(error) : resolve(results))
    })
    this.schedule(...options, promised).then((results) => callback(null, ...results), (error) => callback(error))
  }

  chain (limiter) {
    if (limiter && !(limiter instanceof Bottleneck)) throw new TypeError(`the limiter is ${show(limiter)}; must be a Bottleneck`)
    this.#next = limiter ?? undefined
    return this
  }

  /** Ends the limiter. The promise resolves once no job is left. */
  async stop (options) {
    const { dropWaitingJobs = true, dropErrorMessage = 'This limiter has been stopped.', enqueueErrorMessage = 'This limiter has been stopped and cannot accept new jobs.' } =
      optionsOf(options ?? {}, OPTIONS_OF_STOP)
    if (this.#stopped) throw new BottleneckError('stop() has already been called')
    this.#stopped = enqueueErrorMessage
    if (dropWaitingJobs) for (const job of [...this.#waiting.keys()]) this.#drop(job, dropErrorMessage)
    while (!this.empty() || this.#running > 0) await new Promise((resolve) => this.#events.once('end', resolve))
  }

  counts () {
    return { RECEIVED: 0, QUEUED: this.#waiting.size, RUNNING: this.#running - this.#executing, EXECUTING: this.#executing, DONE: this.#done }
  }

  queued () {
    return this.#waiting.size
  }

  empty () {
    return this.#waiting.size === 0
  }

  async running () {
    return this.#running
  }

  async done () {
    return this.#done
  }

  /** Returns whether a job would start at once. */
  async check (weight = 1) {
    return this.#fits(permitsOf(weight))
  }

  async currentReservoir () {
    return this.#reservoir?.remaining ?? null
  }

  async incrementReservoir (amount) {
    if (this.#reservoir === undefined || this.#hasRefresh) throw new TypeError('only a reservoir without a refresh can be incremented')
    this.#reservoir.refill(permitsOf(amount))
    return this.#reservoir.remaining
  }

  on (event, listener) {
    this.#events.on(event, listener)
    return this
  }

  once (event, listener) {
    this.#events.once(event, listener)
    return this
  }

  removeAllListeners (event) {
    this.#events.removeAllListeners(event)
    return this
  }

  #limits (weight) {
    return [[this.#inFlight, weight], [this.#spacing, 1], [this.#reservoir, weight]].filter(([limiter]) => limiter)
  }

  #fits (weight) {
    return this.empty() && this.#limits(weight).every(([limiter, permits]) => limiter.peek(permits) === 0)
  }

  /** Takes what a job needs, if it can start at once. */
  #take (weight) {
    if (!this.#fits(weight)) return false
    // Nothing runs in between, and time only adds to what fits.
    for (const [limiter, permits] of this.#limits(weight)) limiter.tryAcquire(permits)
    return true
  }

  async #enter (job) {
    if (this.#stopped) throw new BottleneckError(this.#stopped)
    const { highWater, strategy } = this.#settings
    const control = new AbortController()
    const { promise, resolve, reject } = withResolvers()
    const { rejectOnDrop } = this.#settings
    const entry = { ...job, control, isDropped: false }
    const fail = (error) => { if (rejectOnDrop || !entry.isDropped) reject(error) }
    control.signal.addEventListener('abort', () => fail(control.signal.reason))
    if (this.#take(job.options.weight)) {
      this.#running++
      // A job runs after the call of `schedule`, however soon it starts.
      Promise.resolve().then(() => this.#run(entry)).then(resolve, fail)
      return promise
    }
    if (this.#waiting.size >= highWater) {
      if (strategy === STRATEGIES.OVERFLOW || highWater === 0) {
        this.#drop(entry)
        return promise
      }
      this.#drop(this.#waiting.keys().next().value)
    }
    this.#waiting.set(entry, undefined)
    this.#start(entry).then(resolve, fail)
    return promise
  }

  async #start (entry) {
    const { options, control } = entry
    const { signal } = control
    let isInFlight = false
    try {
      // What waits for a reservoir takes nothing in flight, and starts are spaced last.
      await this.#reservoir?.acquire(options.weight, { signal })
      await this.#inFlight?.acquire(options.weight, { signal })
      isInFlight = this.#inFlight !== undefined
      await this.#spacing?.acquire(1, { signal })
    } catch (error) {
      if (isInFlight) this.#inFlight.release(options.weight)
      if (this.#waiting.delete(entry)) this.#events.emit('end')
      throw error
    }
    this.#waiting.delete(entry)
    this.#running++
    return this.#run(entry)
  }

  /** Runs a job that has all that it needs. */
  async #run (entry) {
    if (this.empty()) this.#emit('empty')
    if (this.#reservoir?.remaining === 0) this.#emit('depleted', this.empty())
    try {
      return await this.#attempts(entry)
    } finally {
      this.#inFlight?.release(entry.options.weight)
      this.#running--
      this.#done++
      if (this.empty() && this.#running === 0) this.#emit('idle')
      this.#events.emit('end')
    }
  }

  /** Runs a job, and again where a listener of `failed` returns a number of milliseconds. */
  async #attempts ({ run, args, options }) {
    for (let retryCount = 0; ; retryCount++) {
      const info = { args, options, retryCount }
      try {
        this.#executing++
        const execute = () => this.#next ? this.#next.schedule(options, run, ...args) : run(...args)
        const result = await within(options.expiration, execute).finally(() => this.#executing--)
        this.#emit('done', info)
        return result
      } catch (error) {
        const answers = await Promise.all(this.#events.listeners('failed').map((listener) => listener(error, info)))
        const retryAfter = answers.find((answer) => typeof answer === 'number')
        if (retryAfter === undefined) throw error
        this.#emit('retry', error, info)
        await new Promise((resolve) => setTimeout(resolve, retryAfter))
      }
    }
  }

  #drop (entry, message = 'This job has been dropped by Bottleneck') {
    if (this.#waiting.delete(entry)) this.#events.emit('end')
    entry.isDropped = true
    this.#emit('dropped', { args: entry.args, options: entry.options })
    entry.control.abort(new BottleneckError(message))
  }

  #emit (event, ...args) {
    try {
      this.#events.emit(event, ...args)
    } catch (error) {
      if (event === 'error' || this.#events.listenerCount('error') === 0) throw error
      this.#events.emit('error', error)
    }
  }
}

/** A limiter for each key. One without jobs is dropped some minutes after its last use. */
class Group {
  #options
  #limiters = new Map()
  #events = new EventEmitter()

  constructor (options) {
    this.#options = options
    // It says at once what is wrong with them.
    this.timeout = new Bottleneck(options).timeout
  }

  key (key = '') {
    const now = performance.now()
    const { limiter = new Bottleneck({ ...this.#options, id: `group-key-${key}` }) } = this.#limiters.get(key) ?? {}
    const isNew = !this.#limiters.delete(key)
    this.#limiters.set(key, { limiter, used: now })
    for (const [other, { limiter, used }] of this.#limiters) {
      // They are in the order of their last use.
      if (now - used < this.timeout) break
      const { QUEUED, RUNNING, EXECUTING } = limiter.counts()
      if (QUEUED + RUNNING + EXECUTING === 0) this.#limiters.delete(other)
    }
    if (isNew) this.#events.emit('created', limiter, key)
    return limiter
  }

  keys () {
    return [...this.#limiters.keys()]
  }

  limiters () {
    return [...this.#limiters].map(([key, { limiter }]) => ({ key, limiter }))
  }

  async deleteKey (key) {
    const known = this.#limiters.get(key)
    this.#limiters.delete(key)
    await known?.limiter.stop()
    return known !== undefined
  }

  on (event, listener) {
    this.#events.on(event, listener)
    return this
  }
}

function withResolvers () {
  const made = {}
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }))
  return made
}

/** Runs a job for at most so many milliseconds. */
async function within (expiration, execute) {
  if (expiration === undefined || expiration === null) return execute()
  let timer
  const expired = new Promise((_resolve, reject) => {
    timer = setTimeout(() => reject(new BottleneckError(`This job timed out after ${expiration} ms.`)), expiration)
  })
  try {
    return await Promise.race([execute(), expired])
  } finally {
    clearTimeout(timer)
  }
}

Bottleneck.Group = Group

module.exports = Bottleneck
