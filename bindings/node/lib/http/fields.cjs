// The header fields that report a limit to clients: those of draft-ietf-httpapi-ratelimit-headers-11
// and X-RateLimit-*.
'use strict'

const { optionsOf, permitsOf, spanNs } = require('../arguments.cjs')
const { show } = require('../show.cjs')

const UNITS = ['requests', 'content-bytes', 'concurrent-requests', 'tokens', 'input-tokens', 'output-tokens']
const DIALECTS = ['current', 'legacy']
const MAX_NAME = 128
/** The largest integer of a structured field (RFC 9651, 3.3.1). */
const MAX_INTEGER = 999_999_999_999_999

/** The fields of a policy. `window` is in seconds, and missing for permits in flight. */
class Fields {
  #name
  #item
  #quota
  #windowMs
  #dialects
  /** The last text of what remains, and its numbers. */
  #text
  #remaining
  #seconds

  constructor ({ name, quota, windowNs, unit = 'requests', dialects = ['current'] }) {
    this.policy = name
    this.#name = quoted(name)
    this.#quota = Math.min(quota, MAX_INTEGER)
    this.#windowMs = windowNs === undefined ? 0 : Number(windowNs) / 1e6
    const window = windowNs === undefined ? '' : `;w=${wholeSeconds(windowNs)}`
    const units = unit === 'requests' ? '' : `;qu=${quoted(unit)}`
    this.#item = `${this.#name};q=${this.#quota}${window}${units}`
    this.#dialects = dialects
  }

  /**
   * Writes what remains and the milliseconds until there is more, `null` if there never is or it is
   * not known. What an outer layer has written stays: the current dialect lists both, the legacy one has the stricter.
   */
  write (remaining, moreAfter, headers, response) {
    remaining = Math.min(remaining, MAX_INTEGER)
    for (const dialect of this.#dialects) {
      if (dialect === 'current') {
        // Both before either is set: a response without fields answers at once.
        const policies = headers.get(response, 'RateLimit-Policy')
        const states = headers.get(response, 'RateLimit')
        headers.set(response, 'RateLimit-Policy', behind(policies, this.#item))
        headers.set(response, 'RateLimit', behind(states, this.#state(remaining, moreAfter)))
        continue
      }
      // A request for more than there can ever be has no time of its own, but the limit has.
      const missing = Math.max(this.#quota - remaining, 0)
      const after = moreAfter ?? (missing === 0 ? 0 : this.#windowMs * missing / this.#quota)
      this.#writeLegacy(remaining, Math.ceil(after / 1000), headers, response)
    }
  }

  /** Returns what remains as text: often the last one again, as most clients have used little. */
  #state (remaining, moreAfter) {
    const seconds = moreAfter === null ? null : Math.min(Math.ceil(moreAfter / 1000), MAX_INTEGER)
    if (remaining !== this.#remaining || seconds !== this.#seconds) {
      const reset = seconds === null ? '' : `;t=${seconds}`
      this.#text = `${this.#name};r=${remaining}${reset}`
      this.#remaining = remaining
      this.#seconds = seconds
    }
    return this.#text
  }

  #writeLegacy (remaining, reset, headers, response) {
    const there = headers.get(response, 'X-RateLimit-Remaining')
    if (there !== undefined && there !== null && Number(there) <= remaining) return
    headers.set(response, 'X-RateLimit-Limit', String(this.#quota))
    headers.set(response, 'X-RateLimit-Remaining', String(remaining))
    headers.set(response, 'X-RateLimit-Reset', String(Math.min(reset, MAX_INTEGER)))
  }
}

/** Returns a list with one item more. */
function behind (there, item) {
  return there === undefined || there === null ? item : `${there}, ${item}`
}

/** Checks the option `headers`, and returns what it says of the policy. */
function announcedOf (value) {
  const { name = 'default', quota, window, unit, dialects = ['current'] } =
    optionsOf(value, ['name', 'quota', 'window', 'unit', 'dialects'])
  if (typeof name !== 'string' || name === '' || name.length > MAX_NAME || !/^[ -~]*$/.test(name)) {
    throw new RangeError(`the policy's name is ${show(name)}; must be 1 to ${MAX_NAME} printable characters of ASCII`)
  }
  if (unit !== undefined && !UNITS.includes(unit)) {
    throw new RangeError(`unit is ${show(unit)}; must be one of ${UNITS.join(', ')}`)
  }
  if (!Array.isArray(dialects) || !dialects.every((dialect) => DIALECTS.includes(dialect))) {
    throw new RangeError(`dialects is ${show(dialects)}; must be an array of ${DIALECTS.join(', ')}`)
  }
  const windowNs = window === undefined ? undefined : spanNs(window, 'window')
  if (windowNs === 0n) throw new RangeError('the window has no length; must be longer than 0')
  return { name, quota: quota === undefined ? undefined : permitsOf(quota), windowNs, unit, dialects: [...new Set(dialects)] }
}

/** Writes a string (RFC 9651, 3.3.3). */
function quoted (text) {
  return `"${text.replace(/["\\]/g, '\\$&')}"`
}

/** Returns nanoseconds in seconds, rounded up. */
function wholeSeconds (ns) {
  const seconds = (ns + 999_999_999n) / 1_000_000_000n
  return seconds > BigInt(MAX_INTEGER) ? MAX_INTEGER : Number(seconds)
}

/** Returns the seconds of `Retry-After`: at least one, as a client that reads 0 returns at once. */
function retrySeconds (ns) {
  return Math.max(wholeSeconds(ns), 1)
}

module.exports = { Fields, announcedOf, retrySeconds }
