// Addresses as names of clients, and networks of them.
'use strict'

const { isIPv4, isIPv6 } = require('node:net')

const { show } = require('../show.cjs')

/**
 * Returns the words of an address, of 16 bits each: two of IPv4, eight of IPv6. An IPv4 address
 * that is mapped into IPv6 is the IPv4 address. `null` for any other text.
 */
function addressOf (text) {
  if (isIPv4(text)) return wordsOfV4(text)
  // A zone names an interface of this machine.
  if (!isIPv6(text) || text.includes('%')) return null
  const dotted = text.lastIndexOf(':') + 1
  const tail = text.includes('.') ? wordsOfV4(text.slice(dotted)) : []
  const hex = tail.length > 0 ? text.slice(0, dotted).replace(/([^:]):$/, '$1') : text
  const [before, after] = hex.split('::').map((part) => part.split(':').filter(Boolean))
  const words = before.map((word) => parseInt(word, 16))
  const last = [...(after ?? []).map((word) => parseInt(word, 16)), ...tail]
  const all = [...words, ...Array(8 - words.length - last.length).fill(0), ...last]
  const isMapped = all[5] === 0xffff && all.slice(0, 5).every((word) => word === 0)
  return isMapped ? all.slice(6) : all
}

function wordsOfV4 (text) {
  const [a, b, c, d] = text.split('.').map(Number)
  return [a * 256 + b, c * 256 + d]
}

/** Returns the first of the addresses with equal first bits. */
function firstOf (words, bits) {
  return words.map((word, at) => word & (0xffff << Math.max(16 - Math.max(bits - 16 * at, 0), 0)))
}

/** Returns an address as text: zeros of IPv6 are left out where there are most. */
function textOf (words) {
  if (words.length === 2) {
    const [high, low] = words
    return `${high >> 8}.${high & 255}.${low >> 8}.${low & 255}`
  }
  let [start, count] = [0, 1]
  for (let at = 0; at < 8; at++) {
    let end = at
    while (words[end] === 0) end++
    if (end - at > count) [start, count] = [at, end - at]
  }
  const hex = (from, to) => words.slice(from, to).map((word) => word.toString(16)).join(':')
  return count > 1 ? `${hex(0, start)}::${hex(start + count, 8)}` : hex(0, 8)
}

/** Returns the name of an address' group: a network, if it has more than one address. */
function nameOf (words, { groupV4, groupV6 }) {
  if (words.length === 2 && groupV4 === 32) return textOf(words)
  const bits = words.length === 2 ? groupV4 : groupV6
  const first = textOf(firstOf(words, bits))
  return bits < words.length * 16 ? `${first}/${bits}` : first
}

/** Returns the function that tells of an address whether it is in a network like `10.0.0.0/8`. */
function networkOf (text) {
  const wrong = (why) => new RangeError(`the network ${show(text)} ${why}`)
  if (typeof text !== 'string') throw new TypeError(`the network is ${show(text)}; must be text such as "10.0.0.0/8"`)
  const [, address, length] = /^([^/]*)(?:\/(\d{1,3}))?$/.exec(text) ?? []
  const first = addressOf(address ?? '')
  // An IPv4 address mapped into IPv6 only lies in IPv4 networks.
  if (first === null || (first.length === 2 && !isIPv4(address))) {
    throw wrong('is none: write 10.0.0.0/8, 2001:db8::/32 or one address')
  }
  const bits = length === undefined ? first.length * 16 : Number(length)
  if (bits > first.length * 16) throw wrong('has more bits than an address of its kind')
  const equals = (words) => words.length === first.length && words.every((word, at) => word === first[at])
  if (!equals(firstOf(first, bits))) throw wrong('has bits set beyond its length')
  return (words) => equals(firstOf(words, bits))
}

module.exports = { addressOf, nameOf, networkOf, textOf }
