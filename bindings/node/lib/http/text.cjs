// Lengths of time and instants as text: decimal seconds, dates of HTTP, Go's durations and RFC 3339.
//
// All are nanoseconds, of instants since 1970. Readers take any text and return `undefined` for
// what they do not know. They round up, so that a client is never early.
'use strict'

const SECOND = 1_000_000_000n
const UNITS = { h: 3600n * SECOND, m: 60n * SECOND, s: SECOND, ms: 1_000_000n, us: 1000n, µs: 1000n, ns: 1n }
const MAX = 2n ** 64n - 1n
const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec']
const DATES = [
  /^\w{3}, (?<day>\d\d) (?<month>\w{3}) (?<year>\d{4}) (?<time>\d\d:\d\d:\d\d) GMT$/,
  /^\w{6,9}, (?<day>\d\d)-(?<month>\w{3})-(?<year>\d\d) (?<time>\d\d:\d\d:\d\d) GMT$/,
  /^\w{3} (?<month>\w{3}) (?<day>[ \d]\d) (?<time>\d\d:\d\d:\d\d) (?<year>\d{4})$/
]
const RFC_3339 = /^(\d{4})-(\d\d)-(\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.(\d+))?(?:[Zz]|([+-])(\d\d):(\d\d))$/

/** Reads a whole number. One beyond 64 bits is the greatest. */
function digits (text) {
  if (!/^[0-9]+$/.test(text)) return undefined
  return text.length > 20 || BigInt(text) > MAX ? MAX : BigInt(text)
}

/** Reads digits with or without a fraction, as a count of a unit. */
function decimal (text, unit) {
  const [, whole, fraction = '0'] = /^([0-9]+)(?:\.([0-9]+))?$/.exec(text) ?? []
  if (whole === undefined) return undefined
  return digits(whole) * unit + part(fraction, unit)
}

/** Returns the fraction of a unit whose digits these are. Those behind the twelfth round up. */
function part (fraction, unit) {
  const read = BigInt(fraction.slice(0, 12).padEnd(12, '0')) + (/[1-9]/.test(fraction.slice(12)) ? 1n : 0n)
  return (read * unit + 999_999_999_999n) / 1_000_000_000_000n
}

/** Reads a decimal number of seconds: `7`, or `2.5`. */
function seconds (text) {
  return decimal(text, SECOND)
}

/** Reads a duration as Go writes it: `6m0s`, `2m52.8s`, `12ms`. */
function goDuration (text) {
  const parts = text.match(/[0-9.]+(?:ms|us|µs|ns|h|m|s)/g) ?? []
  if (parts.length === 0 || parts.join('') !== text) return undefined
  let sum = 0n
  for (const each of parts) {
    const [, number, unit] = /^([0-9.]+)(.+)$/.exec(each)
    const time = decimal(number, UNITS[unit])
    if (time === undefined) return undefined
    sum += time
  }
  return sum
}

/** Reads a date of HTTP, in each of its three forms. */
function httpDate (text) {
  for (const form of DATES) {
    const { day, month, year, time } = form.exec(text)?.groups ?? {}
    if (day === undefined) continue
    const full = year.length === 4 ? Number(year) : Number(year) + (Number(year) < 70 ? 2000 : 1900)
    return instant(full, MONTHS.indexOf(month), Number(day), time)
  }
  return undefined
}

/** Reads `2025-08-21T12:40:59Z`. Whole seconds count as their end: a fraction may be cut off. */
function rfc3339 (text) {
  const [, year, month, day, time, fraction, sign, hours, minutes] = RFC_3339.exec(text) ?? []
  if (year === undefined) return undefined
  const at = instant(Number(year), Number(month) - 1, Number(day), time)
  if (at === undefined) return undefined
  const offset = BigInt(Number(hours ?? 0) * 60 + Number(minutes ?? 0)) * 60n * SECOND
  return at + (fraction === undefined ? SECOND : part(fraction, SECOND)) + (sign === '-' ? offset : -offset)
}

function instant (year, month, day, time) {
  const [hours, minutes, s] = time.split(':').map(Number)
  const date = new Date(Date.UTC(year, month, day, hours, minutes, s))
  // Others would be another day.
  const isValid = month >= 0 && month < 12 && date.getUTCMonth() === month && date.getUTCDate() === day
  return isValid && hours < 24 && minutes < 60 && s < 60 ? BigInt(date.getTime()) * 1_000_000n : undefined
}

module.exports = { digits, goDuration, httpDate, rfc3339, seconds }
