// Plays the project's scenarios, as tapes: docs/conformance.md says what their lines mean.
import assert from 'node:assert/strict'
import { existsSync, readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'

import { Closed, ExceedsCapacity, Full, Grant, Limiter, ManualClock, Never, TooLong } from 'rategate'

const { RATEGATE_TAPES: FOLDER, RATEGATE_CONFORMANCE: RECORDS } = process.env
const DEBTS = { forget: 'forgotten', carry: 'carried' }

/** A limiter and its waits, as the lines so far left them. */
class Player {
  policies = []
  /** The ends of waits whose lines have not come. */
  ends = []
  /** By the number of the call: grants, reservations, holds, and waits that have not ended. */
  grants = new Map()
  reservations = new Map()
  holds = new Map()
  waits = new Map()

  async line (line) {
    const [, word, rest] = /^(\S+) ?(.*)$/.exec(line)
    await this[word](rest)
  }

  tape (version) {
    assert.equal(version, '1')
  }

  name () {}

  limit (body) {
    // A table of TOML in one line is an object of JSON, but for the signs behind its keys.
    const json = `{${body.replaceAll('; ', ', ')}}`.replace(/(\w+) = /g, '"$1": ')
    this.policies.push(JSON.parse(json))
  }

  begin (rest) {
    const given = fields(rest.split(' '))
    this.clock = new ManualClock()
    this.clock.advance(`${given.clock}ns`)
    const debt = { debt: DEBTS[given.debt] }
    if (given.max_debt !== undefined) debt.maxDebt = `${given.max_debt}ns`
    this.limiter = new Limiter(this.policies, { clock: this.clock, ...debt })
    const bounds = { waiters: Number(given.waiters), whenFull: given.full }
    if (given.permits !== undefined) bounds.permits = Number(given.permits)
    this.limiter.boundQueue(bounds)
    this.policies = []
  }

  async clockTo (nowNs) {
    this.clock.advance(`${BigInt(nowNs) - this.clock.nowNs}ns`)
    await this.clock.settle()
  }

  idle () {
    assert.deepEqual(this.ends, [])
  }

  async serve () {
    assert.ok(this.limiter.remaining >= 0)
    await this.clock.settle()
  }

  end (rest) {
    assert.equal(this.ends.shift(), rest)
  }

  async call (rest) {
    assert.deepEqual(this.ends, [])
    const [call, result] = rest.split(' -> ')
    const [number, verb, ...given] = call.split(' ')
    const done = await calls[verb].call(this, Number(number), fields(given), result.startsWith('waiting'))
    await this.clock.settle()
    assert.equal(`${done} remaining=${this.limiter.remaining}`, result)
  }

  remaining (number) {
    assert.equal(this.limiter.remaining, Number(number))
  }

  async close () {
    assert.deepEqual(this.ends, [])
    this.limiter.close()
    await this.clock.settle()
  }

  /** Returns the grant of a call. A reservation becomes one. */
  granted (given) {
    const call = Number(given.of)
    const reservation = this.reservations.get(call)
    if (reservation) {
      this.grants.set(call, reservation.keep())
      this.reservations.delete(call)
    }
    return this.grants.get(call)
  }
}

const calls = {
  try (number, given) {
    return shown(() => {
      const decision = this.limiter.check(Number(given.permits))
      if (!decision.granted) return denied('denied', decision.retryAfterNs)
      this.grants.set(number, decision.grant)
      return decision.grant
    })
  },

  peek (_, given) {
    return shown(() => denied('peeked', this.limiter.peekNs(Number(given.permits)) || null))
  },

  async wait (number, given, isToWait) {
    const control = new AbortController()
    const options = { signal: control.signal }
    if (given.timeout !== undefined) options.timeout = `${given.timeout}ns`
    let outcome
    const ended = (run) => {
      if (this.waits.delete(number)) this.ends.push(`${number} ${shown(run, true)}`)
      else outcome ??= run
    }
    const granted = (grant) => {
      this.grants.set(number, grant)
      ended(() => grant)
    }
    const failed = (error) => {
      if (error === control.signal.reason) this.waits.delete(number)
      else ended(() => { throw error })
    }
    if (isToWait) this.waits.set(number, control)
    this.limiter.acquire(Number(given.permits), options).then(granted, failed)
    if (isToWait) return 'waiting'
    // What is free is taken once the caller has done what it does at once.
    await this.clock.settle()
    return outcome ? shown(outcome) : 'waiting'
  },

  async leave (_, given) {
    const call = Number(given.of)
    const control = this.waits.get(call)
    control?.abort()
    await undefined
    return control && !this.waits.has(call) ? 'left' : 'too-late'
  },

  reserve (number, given) {
    const options = given.timeout === undefined ? {} : { timeout: `${given.timeout}ns` }
    return shown(() => {
      const reservation = this.limiter.reserve(Number(given.permits), options)
      this.reservations.set(number, reservation)
      return `granted start=${reservation.promisedAtNs}`
    })
  },

  cancel (_, given) {
    const call = Number(given.of)
    const of = this.holds.get(call) ?? this.reservations.get(call)
    this.holds.delete(call)
    this.reservations.delete(call)
    return of?.cancel() ? 'cancelled' : 'too-late'
  },

  hold (number, given) {
    return shown(() => {
      const hold = this.limiter.tryHold(Number(given.permits), `${given.ttl}ns`)
      this.holds.set(number, hold)
      return `held start=${hold.endsAtNs - BigInt(given.ttl)}`
    })
  },

  commit (_, given) {
    const [call, actual] = [Number(given.of), Number(given.actual)]
    const hold = this.holds.get(call)
    this.holds.delete(call)
    const end = hold.commit(actual)
    if ('booked' in end) return `late debt=${end.debt} forgiven=${end.forgiven}`
    return `committed${corrected(end, hold.permits, actual)}`
  },

  charge (_, given) {
    return forThisLimit(() => {
      const { debt, forgiven } = this.limiter.charge(Number(given.permits))
      return `charged debt=${debt} forgiven=${forgiven}`
    })
  },

  release (_, given) {
    if (given.of) this.limiter.releaseWithOutcome(this.granted(given), given.outcome)
    else this.limiter.release(Number(given.permits))
    return 'set'
  },

  refill (_, given) {
    this.limiter.refill(Number(given.permits))
    return 'set'
  },

  set () {
    this.limiter.reconfigure(this.policies)
    this.policies = []
    return 'set'
  }
}

// `clock` is the name of a line and of what it moves.
const LINES = { clock: 'clockTo' }

/** Returns the keys and values of words like `permits=1`. */
function fields (words) {
  return Object.fromEntries(words.map((word) => word.split('=')))
}

function denied (word, retryAfterNs) {
  return retryAfterNs === null ? word : `${word} retry_after=${retryAfterNs}`
}

/** Returns the correction of an estimate as a tape writes it. */
function corrected ({ refunded, charged, forgiven }, estimate, actual) {
  const back = actual < estimate ? ` back=${refunded}` : ''
  // Operations in flight owe nothing.
  const owed = actual > estimate && charged + forgiven > 0 ? ` owed=${charged}` : ''
  return `${back}${owed}${forgiven > 0 ? ` forgiven=${forgiven}` : ''}`
}

/** Returns the result of a call, or the end of a wait, as a tape writes it. */
function shown (run, isEnd = false) {
  try {
    const result = run()
    if (!(result instanceof Grant)) return result
    return `granted start=${result.promisedAtNs} scheduled=${result.scheduledAtNs}`
  } catch (error) {
    if (error instanceof TooLong) {
      return isEnd ? 'deadline-passed' : denied('denied', error.retryAfterNs)
    }
    if (error instanceof ExceedsCapacity) return 'never'
    if (error instanceof Never) return 'denied'
    if (error instanceof Full) return isEnd ? 'evicted' : 'full'
    if (error instanceof Closed) return 'closed'
    throw error
  }
}

function forThisLimit (run) {
  try {
    return run()
  } catch (error) {
    if (error instanceof Never) return 'not-for-this-limit'
    throw error
  }
}

async function play (text) {
  const player = new Player()
  for (const [at, line] of text.trimEnd().split('\n').entries()) {
    const [word] = line.split(' ', 1)
    try {
      await player.line(line.replace(word, LINES[word] ?? word))
    } catch (cause) {
      throw new Error(`line ${at + 1}: ${line}: ${cause.message}`, { cause })
    }
  }
  assert.deepEqual([player.ends, player.waits.size], [[], 0])
}

test('every tape plays', { skip: !existsSync(FOLDER ?? '') && 'RATEGATE_TAPES names no folder with tapes' }, async () => {
  const tapes = readdirSync(FOLDER).filter((file) => file.endsWith('.tape'))
  for (const file of tapes) {
    await play(readFileSync(join(FOLDER, file), 'ascii')).catch((cause) => {
      throw new Error(`${file}, ${cause.message}`, { cause })
    })
  }
  assert.ok(tapes.length > 700)
  if (!RECORDS) return
  const played = tapes.filter((file) => !file.startsWith('seed-')).map((file) => `${file.slice(0, -5)}\t\n`)
  writeFileSync(join(RECORDS, 'node.txt'), played.join('') + readFileSync(join(FOLDER, 'left-out.txt'), 'utf8'))
})
