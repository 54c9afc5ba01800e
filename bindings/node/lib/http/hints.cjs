// The hints of a response for a client's next requests, in the fields of several vendors. Any text
// gives hints; fields that cannot be read are as if they were not there. Times are nanoseconds.
'use strict'

const { digits, goDuration, httpDate, rfc3339, seconds } = require('./text.cjs')

const SECOND = 1_000_000_000n
/** The longest time that a server can make a client hold. */
const MAX_HOLD_MS = 3_600_000
/** The hold after a 429 without a time: some servers send 0 when less than a second is left. */
const DEFAULT_BACKOFF = SECOND
/** The hold after a refusal of GitHub's that does not say ("Rate limits for the REST API"). */
const GITHUB_BACKOFF = 60n * SECOND
/** The time in which a full bucket of Shopify's is empty ("REST Admin API rate limits"). */
const CALL_LIMIT_DRAINS = 20n * SECOND
/** From here on a reset is a Unix time in seconds, or in milliseconds. */
const [UNIX_FROM, UNIX_MS_FROM] = [1_000_000_000n * SECOND, 1_000_000_000_000n * SECOND]
const MAX_VALUE = 8192
const MAX_LIMITS = 32
const UNITS = ['requests', 'content-bytes', 'concurrent-requests', 'tokens', 'input-tokens', 'output-tokens']
const TOKENS = ['tokens', 'input-tokens', 'output-tokens']
const REFUSALS = [429, 403, 503]

/** Fields that come in threes: the unit, their names, and whether the quota refills evenly. */
const TRIPLES = [
  ['requests', ['ratelimit-limit', 'ratelimit-remaining', 'ratelimit-reset'], false],
  ['requests', ['x-ratelimit-limit', 'x-ratelimit-remaining', 'x-ratelimit-reset'], false],
  ...['requests', 'tokens'].map((unit) => [
    unit, ['limit', 'remaining', 'reset'].map((what) => `x-ratelimit-${what}-${unit}`), true
  ]),
  ...['requests', ...TOKENS].map((unit) => [
    unit, ['limit', 'remaining', 'reset'].map((what) => `anthropic-ratelimit-${unit}-${what}`), true
  ])
]

/**
 * Returns the hold that a response asks for, whether it is a guess, and the limits that it has.
 * `valuesOf` returns the lines of a field; `now` is since 1970, by the client's clock.
 */
function hintsOf (status, valuesOf, now, maxHold) {
  const values = (name) => valuesOf(name).map((text) => text.trim()).filter((text) => text.length <= MAX_VALUE)
  // The server's own clock counts, so that both need not agree.
  now = httpDate(values('date')[0] ?? '') ?? now
  const isOver = status === 429
  const isRefusal = REFUSALS.includes(status)
  const limits = limitsOf(values, now)
  const retryAfter = isRefusal ? greatest(values('retry-after').map((text) => waitOf(text, now))) : undefined
  const exhausted = limits.filter((limit) => limit.remaining === 0n)
  let isGuess = false
  let hold
  if (isRefusal) {
    const backoff = values('x-ratelimit-resource').length > 0 ? GITHUB_BACKOFF : DEFAULT_BACKOFF
    const named = retryAfter ?? greatest(exhausted.map((limit) => limit.reset))
    isGuess = isOver && !named && backoff === DEFAULT_BACKOFF
    hold = named || (isOver ? backoff : 0n)
  } else {
    const waits = exhausted.filter((limit) => !TOKENS.includes(limit.unit))
    hold = greatest(waits.map((limit) => opensAfter(limit, 1n))) ?? 0n
  }
  for (const limit of exhausted) {
    // `Retry-After` takes precedence over a reset.
    const latest = limit.isGradual ? undefined : retryAfter
    limit.reset = least(limit.reset, latest ?? maxHold, maxHold)
  }
  for (const limit of limits) limit.window = limit.window && least(limit.window, maxHold)
  return {
    hold: least(hold, maxHold),
    isGuess,
    limits: limits.filter((limit) => limit.reset > 0n && limit.reset <= maxHold)
  }
}

/** Returns the time until an amount is available, or the whole quota, if none is taken before. */
function opensAfter ({ remaining, quota, reset, isGradual }, amount) {
  const missing = amount - remaining
  if (missing <= 0n) return 0n
  const used = (quota ?? 0n) - remaining
  return isGradual && missing < used ? (reset * missing + used - 1n) / used : reset
}

function limitsOf (values, now) {
  // What a cache stored says nothing of the present.
  if (numbers(values('age')).some((age) => age > 0n)) return []
  const limits = draftOf(values)
  for (const [unit, names, isGradual] of TRIPLES) {
    const limit = triple(values, unit, names, isGradual, now)
    if (limit && names[1] === 'x-ratelimit-remaining') limit.name = values('x-ratelimit-resource')[0] ?? limit.name
    if (limit) limits.push(limit)
  }
  limits.push(...values('x-shopify-shop-api-call-limit').map(callLimit).filter(Boolean))
  return limits.slice(0, MAX_LIMITS)
}

/** Reads three fields. Of several lines the strictest counts. */
function triple (values, unit, [limit, remaining, reset], isGradual, now) {
  const left = numbers(values(remaining))
  const until = greatest(values(reset).map((text) => timeUntil(text, now)))
  if (left.length === 0 || until === undefined) return undefined
  return {
    name: remaining, unit, quota: least(...numbers(values(limit))), window: undefined, remaining: least(...left), reset: until, isGradual
  }
}

/** Reads the requests in a leaky bucket and its size, `32/40`. */
function callLimit (text) {
  const [used, quota, more] = text.split('/').map(digits)
  if (used === undefined || !quota || more !== undefined) return undefined
  const inside = least(used, quota)
  return {
    name: 'x-shopify-shop-api-call-limit',
    unit: 'requests',
    quota,
    window: undefined,
    remaining: quota - inside,
    reset: CALL_LIMIT_DRAINS * inside / quota,
    isGradual: true
  }
}

/** Reads `Retry-After`: seconds, with a fraction in some services, or a date. */
function waitOf (text, now) {
  return seconds(first(text)) ?? until(httpDate(text), now)
}

/** Reads a reset in any form. No text has two of them. */
function timeUntil (text, now) {
  text = first(text)
  const time = seconds(text)
  if (time === undefined) return goDuration(text) ?? until(rfc3339(text), now)
  if (time >= UNIX_MS_FROM) return until(time / 1000n, now)
  return time >= UNIX_FROM ? until(time, now) : time
}

function until (instant, now) {
  return instant === undefined ? undefined : instant > now ? instant - now : 0n
}

/** Reads the numbers at the starts of lines, rounded down: some servers send fractions. */
function numbers (lines) {
  return lines.map((text) => seconds(first(text))).filter((time) => time !== undefined).map((time) => time / SECOND)
}

function first (text) {
  return text.split(/[,;]/, 1)[0].trim()
}

/** Reads both fields of draft-ietf-httpapi-ratelimit-headers-11. */
function draftOf (values) {
  const items = (name) => values(name).flatMap((line) => itemsOf(line) ?? []).slice(0, MAX_LIMITS)
  const policies = items('ratelimit-policy')
  // What remains without a time means nothing.
  return items('ratelimit').filter((item) => item.r !== undefined && item.t !== undefined).map((item) => {
    const named = policies.filter((policy) => policy.name === item.name)
    const policy = named.find((policy) => policy.pk === item.pk) ?? named[0]
    return {
      name: item.name + item.pk,
      unit: policy ? policy.unit : 'requests',
      quota: policy?.q ?? item.q,
      window: policy?.w && policy.w * SECOND,
      remaining: item.r,
      reset: item.t * SECOND,
      isGradual: false
    }
  })
}

/** Reads a line: items, or the dictionary of version 07. `undefined` if any part is malformed. */
function itemsOf (line) {
  const items = []
  const entries = { name: '', pk: '', unit: 'requests' }
  const malformed = Symbol('malformed')
  const integer = (text) => /^[0-9]{1,15}$/.test(text) ? BigInt(text) : malformed
  for (const member of splitOutsideQuotes(line, ',').slice(0, MAX_LIMITS)) {
    const [name, ...fields] = splitOutsideQuotes(member, ';')
    const [, entry, number] = /^(limit|remaining|reset)=(.*)$/.exec(name) ?? []
    if (entry !== undefined) entries[{ limit: 'q', remaining: 'r', reset: 't' }[entry]] = integer(number)
    const item = { name: unquoted(name), pk: '', unit: 'requests' }
    for (const field of fields) {
      const at = field.indexOf('=')
      const [key, value] = at < 0 ? [field, ''] : [field.slice(0, at), field.slice(at + 1)]
      if (at < 0) continue
      if (['q', 'r', 't', 'w'].includes(key)) item[key] = integer(value)
      if (key === 'qu') item.unit = unquoted(value)
      if (key === 'pk') item.pk = value
    }
    if (item.name === undefined || item.unit === undefined || item.w === 0n) return undefined
    if (!UNITS.includes(item.unit)) item.unit = null
    items.push(item)
  }
  items.push(entries)
  if (items.some((item) => Object.values(item).includes(malformed))) return undefined
  return items.filter((item) => item.r !== undefined || item.q !== undefined)
}

/** Reads a string, or a token as it stands. `undefined` if a string has no end, or more behind it. */
function unquoted (text) {
  if (!text.startsWith('"')) return text
  return /^"((?:[^"\\]|\\.)*)"$/.exec(text)?.[1].replace(/\\(.)/g, '$1')
}

function splitOutsideQuotes (text, separator) {
  const parts = []
  let [isQuoted, isEscaped, start] = [false, false, 0]
  for (let at = 0; at < text.length; at++) {
    const wasEscaped = isEscaped
    isEscaped = isQuoted && !wasEscaped && text[at] === '\\'
    if (text[at] === '"' && !wasEscaped) isQuoted = !isQuoted
    if (text[at] !== separator || isQuoted) continue
    parts.push(text.slice(start, at).trim())
    start = at + 1
  }
  return [...parts, text.slice(start).trim()]
}

function greatest (times) {
  return times.reduce((max, time) => time !== undefined && (max === undefined || time > max) ? time : max, undefined)
}

function least (...times) {
  return times.reduce((min, time) => min === undefined || time < min ? time : min, undefined)
}

module.exports = { MAX_HOLD_MS, TOKENS, hintsOf, opensAfter, splitOutsideQuotes }
