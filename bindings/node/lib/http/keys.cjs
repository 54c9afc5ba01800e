// Sources of keys: each names the client of a request.
'use strict'

const { optionsOf } = require('../arguments.cjs')
const { show } = require('../show.cjs')
const { addressOf, nameOf, networkOf, textOf } = require('./address.cjs')
const { MAX_HOPS, forwarded, xForwardedFor } = require('./forwarded.cjs')

/** A key of requests that name their client more than once. */
const AMBIGUOUS = Symbol('ambiguous')

/** Returns a source of keys by the address of the peer: IPv6 by /64, the least that one gets. */
function peer (options) {
  const groups = groupsOf(optionsOf(options, ['groupV4', 'groupV6']))
  const names = new WeakMap()
  return (request) => {
    const { socket } = request
    let name = names.get(socket)
    if (name === undefined) {
      const words = addressOfPeer(request)
      if (words === null) return undefined
      names.set(socket, name = nameOf(words, groups))
    }
    return name
  }
}

/**
 * Returns a source of keys by the client's address as trusted proxies report it. `trust` is the
 * number of proxies in front, which clients cannot bypass, or their networks.
 */
function client (options) {
  const { trust, field = 'x-forwarded-for', groupV4, groupV6 } =
    optionsOf(options, ['trust', 'field', 'groupV4', 'groupV6'])
  const groups = groupsOf({ groupV4, groupV6 })
  const name = fieldOf(field, 'field')
  const read = name === 'forwarded' ? forwarded : xForwardedFor
  const find = Array.isArray(trust) ? behindNetworks(trust.map(networkOf)) : behindHops(hopsOf(trust))
  return (request) => {
    const value = request.headers[name]
    const found = find(addressOfPeer(request), read(Array.isArray(value) ? value.join(',') : value ?? ''))
    if (found === null) return undefined
    const { words, hidden, by } = found
    if (hidden === null) return nameOf(words, groups)
    return by === null ? hidden : `${hidden}@${textOf(by)}`
  }
}

/** Returns a source of keys by the value of a header. A repeated one is ambiguous. */
function header (field) {
  const name = fieldOf(field, 'the header')
  return (request) => {
    let found
    const { rawHeaders } = request
    // Node joins the lines of a field, or leaves out all but the first.
    for (let at = 0; at < rawHeaders.length; at += 2) {
      if (rawHeaders[at].toLowerCase() !== name) continue
      if (found !== undefined) return AMBIGUOUS
      found = rawHeaders[at + 1]
    }
    return found
  }
}

/** Names a request by its method. */
function method (request) {
  return request.method
}

/** Names a request by its path as sent, without the query. */
function path (request) {
  return (request.originalUrl ?? request.url).split('?', 1)[0]
}

/** Returns the source of a source, or of several whose keys are joined. */
function sourceOf (value) {
  if (typeof value === 'function') return value
  if (!Array.isArray(value) || value.length === 0 || !value.every((each) => typeof each === 'function')) {
    throw new TypeError(`key is ${show(value)}; must be a function such as peer(), or an array of them`)
  }
  return (request, context) => {
    const keys = value.map((source) => source(request, context))
    if (keys.includes(AMBIGUOUS)) return AMBIGUOUS
    if (keys.some((key) => key === undefined || key === null)) return undefined
    // Each behind its length, so that different lists differ.
    return keys.map((key) => `${String(key).length}:${key},`).join('')
  }
}

/** The addresses of connections, each of which has many requests. */
const addresses = new WeakMap()

function addressOfPeer ({ socket }) {
  const known = addresses.get(socket)
  if (known !== undefined) return known
  const address = socket?.remoteAddress
  if (address === undefined) return null
  // The system writes the interface of a link-local one.
  const words = addressOf(address.split('%', 1)[0])
  addresses.set(socket, words)
  return words
}

function behindHops (hops) {
  return (peer, reports) => {
    let by = peer
    let last = peer && { words: peer, hidden: null, by }
    for (let left = hops; left > 0; left--) {
      const report = reports()
      // Fewer reports than proxies: the request has bypassed one.
      if (report === undefined) return peer && { words: peer, hidden: null, by: peer }
      if (report.words) by = report.words
      last = report.hidden ? { ...report, by } : by && { words: by, hidden: null, by }
    }
    return last
  }
}

function behindNetworks (networks) {
  return (peer, reports) => {
    if (peer === null) return null
    let by = peer
    while (networks.some((contains) => contains(by))) {
      const report = reports()
      if (report === undefined) break
      if (report.hidden) return { ...report, by }
      if (report.words === null) break
      by = report.words
    }
    return { words: by, hidden: null, by }
  }
}

function hopsOf (trust) {
  if (!Number.isInteger(trust) || trust < 0) {
    throw new TypeError(`trust is ${show(trust)}; must be a number of proxies, or an array of their networks`)
  }
  return Math.min(trust, MAX_HOPS)
}

function groupsOf ({ groupV4 = 32, groupV6 = 64 }) {
  for (const [name, bits, max] of [['groupV4', groupV4, 32], ['groupV6', groupV6, 128]]) {
    if (!Number.isInteger(bits) || bits < 0 || bits > max) {
      throw new RangeError(`${name} is ${show(bits)}; must be a number of bits from 0 to ${max}`)
    }
  }
  return { groupV4, groupV6 }
}

function fieldOf (value, what) {
  if (typeof value !== 'string' || !/^[\w!#$%&'*+.^`|~-]+$/.test(value)) {
    throw new TypeError(`${what} is ${show(value)}; must be the name of a header`)
  }
  return value.toLowerCase()
}

module.exports = { AMBIGUOUS, client, header, method, path, peer, sourceOf }
