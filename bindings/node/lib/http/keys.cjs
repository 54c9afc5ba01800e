// Sources of keys: each names the client of a request.
'use strict'

const { optionsOf } = require('../arguments.cjs')
const { call } = require('../errors.cjs')
const native = require('../native.cjs')
const { show } = require('../show.cjs')

/** A key of requests that name their client more than once. */
const AMBIGUOUS = Symbol('ambiguous')

/** Returns a source of keys by the address of the peer: IPv6 by /64, the least that one gets. */
function peer (options) {
  const { groupV4, groupV6 } = groupsOf(optionsOf(options, ['groupV4', 'groupV6']))
  const names = new native.ClientNames(undefined, undefined, groupV4, groupV6)
  /** The names of connections, each of which has many requests. */
  const known = new WeakMap()
  return ({ socket }) => {
    const name = known.get(socket)
    if (name !== undefined) return name
    const found = names.name(socket?.remoteAddress) ?? undefined
    if (found !== undefined) known.set(socket, found)
    return found
  }
}

/**
 * Returns a source of keys by the client's address as trusted proxies report it. `trust` is the
 * number of proxies in front, which clients cannot bypass, or their networks.
 */
function client (options) {
  const { trust, field = 'x-forwarded-for', ...groups } = optionsOf(options, ['trust', 'field', 'groupV4', 'groupV6'])
  const { groupV4, groupV6 } = groupsOf(groups)
  const name = fieldOf(field, 'field')
  const names = call(() => new native.ClientNames(trustOf(trust), name, groupV4, groupV6))
  /** The latest report of each connection, and the name by it. */
  const known = new WeakMap()
  return ({ headers, socket }) => {
    const value = headers[name]
    const report = Array.isArray(value) ? value.join(',') : value
    const latest = known.get(socket)
    if (latest !== undefined && latest.report === report) return latest.name
    const found = names.name(socket?.remoteAddress, report) ?? undefined
    if (found !== undefined && socket) known.set(socket, { report, name: found })
    return found
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

/** Checks the trust in proxies: their number, or their networks. */
function trustOf (trust) {
  const isHops = Number.isInteger(trust) && trust >= 0
  if (!isHops && !Array.isArray(trust)) {
    throw new TypeError(`trust is ${show(trust)}; must be a number of proxies, or an array of their networks`)
  }
  const other = isHops ? undefined : trust.find((network) => typeof network !== 'string')
  if (other !== undefined) throw new TypeError(`the network is ${show(other)}; must be text such as "10.0.0.0/8"`)
  return trust
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
