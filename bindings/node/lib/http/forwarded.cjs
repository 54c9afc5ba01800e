// The reports of proxies about their clients, from right to left: the nearest proxy writes last.
// What is further left is input of the writer that no one has checked.
'use strict'

const { addressOf } = require('./address.cjs')

/** The most reports that are read. Text further left may have any length. */
const MAX_HOPS = 32
const MAX_REPORT = 256
const UNKNOWN = { words: null, hidden: null }

/** Returns a function that returns the next report of `X-Forwarded-For` or the like. */
function xForwardedFor (value) {
  const next = fromTheRight(value, ',', false)
  return () => {
    const report = next()
    return report === undefined ? undefined : node(report)
  }
}

/** Returns a function that returns the next report of `Forwarded` (RFC 7239). */
function forwarded (value) {
  const next = fromTheRight(value, ',', true)
  return () => {
    const element = next()
    return element === undefined ? undefined : elementOf(element)
  }
}

/** Reads `for=192.0.2.60;proto=http;by=203.0.113.43`. */
function elementOf (element) {
  if (element.length > MAX_REPORT) return UNKNOWN
  let found
  const next = fromTheRight(element, ';', true)
  for (let pair; (pair = next()) !== undefined;) {
    const at = pair.indexOf('=')
    if (at < 0 || trimmed(pair.slice(0, at)).toLowerCase() !== 'for') continue
    // Each parameter may occur once: of two, it is unknown which one is meant.
    if (found !== undefined) return UNKNOWN
    found = trimmed(pair.slice(at + 1))
  }
  // Addresses and names have no escapes. One that is left makes the text neither.
  return found === undefined ? UNKNOWN : node(/^"(.*)"$/.exec(found)?.[1] ?? found)
}

/** Reads an address with or without a port, a name that a proxy has made up, or neither. */
function node (text) {
  if (text.length > MAX_REPORT) return UNKNOWN
  const words = addressOf(text)
  if (words) return { words, hidden: null }
  const [, six, name, port] = /^(?:\[([0-9A-Fa-f:.]+)\]|([^[\]:]+))(?::(\d{1,5}|_[\w.-]+))?$/.exec(text) ?? []
  if (six !== undefined) return six.includes(':') ? { words: addressOf(six), hidden: null } : UNKNOWN
  if (name === undefined) return UNKNOWN
  if (/^_[\w.-]+$/.test(name)) return { words: null, hidden: name }
  return port === undefined ? UNKNOWN : { words: addressOf(name), hidden: null }
}

/**
 * Returns a function that returns the next part of a list that is not empty, the last first. Separators within quotes do not
 * count; quotes are paired from the right, so that text further left splits no part.
 */
function fromTheRight (list, separator, hasQuotes) {
  let end = list.length
  let left = MAX_HOPS
  return () => {
    while (end >= 0 && left > 0) {
      const at = hasQuotes ? separatorBefore(list, separator, end) : end === 0 ? -1 : list.lastIndexOf(separator, end - 1)
      const part = trimmed(list.slice(at + 1, end))
      end = at
      if (part === '') continue
      left--
      return part
    }
    return undefined
  }
}

function separatorBefore (list, separator, end) {
  let isQuoted = false
  for (let at = end - 1; at >= 0; at--) {
    // Within quotes only an unescaped one opens them. Outside, any quote closes them.
    if (list[at] === '"') isQuoted = !isQuoted || isEscaped(list, at)
    else if (list[at] === separator && !isQuoted) return at
  }
  return -1
}

function isEscaped (list, at) {
  let backslashes = 0
  while (list[at - 1 - backslashes] === '\\') backslashes++
  return backslashes % 2 === 1
}

/** Trims blanks of ASCII only: others are bytes of a text in another encoding. */
function trimmed (text) {
  let [start, end] = [0, text.length]
  const isBlank = (at) => text[at] === ' ' || text[at] === '\t'
  while (start < end && isBlank(start)) start++
  while (end > start && isBlank(end - 1)) end--
  return text.slice(start, end)
}

module.exports = { MAX_HOPS, forwarded, node, xForwardedFor }
