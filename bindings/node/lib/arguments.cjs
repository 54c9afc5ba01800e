// Checks what callers pass, before the compiled module sees it.
'use strict'

const { call } = require('./errors.cjs')
const native = require('./native.cjs')
const { show } = require('./show.cjs')

/** Keys of a table of a policy that are lengths of time. */
const SPANS = new Set(['period', 'guard', 'resolution', 'min_sleep', 'catch_up', 'slow_start'])

/** Returns a number of permits: 1 without one. */
function permitsOf (value, name = 'permits') {
  if (value === undefined) return 1
  if (typeof value !== 'number') throw new TypeError(`${name} is ${show(value)}; must be a number`)
  if (!Number.isSafeInteger(value) || value < 0) {
    throw new RangeError(`${name} is ${value}; must be a whole number from 0 to ${Number.MAX_SAFE_INTEGER}`)
  }
  return value
}

/** Returns a length of time in nanoseconds: of milliseconds, or of text such as "1.5s". */
function spanNs (value, name) {
  if (typeof value !== 'number' && typeof value !== 'string') {
    throw new TypeError(`${name} is ${show(value)}; must be milliseconds or text such as "1.5s"`)
  }
  if (typeof value === 'number' && !(value >= 0 && value < Infinity)) {
    throw new RangeError(`${name} is ${value}; must be milliseconds, not negative and finite`)
  }
  return call(() => native.spanNs(value, name))
}

/** Returns the same, or `undefined` for none. */
function optionalSpanNs (value, name) {
  return value === undefined || value === null ? undefined : spanNs(value, name)
}

function optionsOf (value, known) {
  if (value === undefined) return {}
  if (value === null || typeof value !== 'object') {
    throw new TypeError(`the options are ${show(value)}; must be an object`)
  }
  // A mistyped option would be ignored, and its default hold.
  for (const name of Object.keys(value)) {
    if (!known.includes(name)) {
      throw new TypeError(`there is no option ${show(name)}; there are ${known.join(', ')}`)
    }
  }
  return value
}

/** Says what to do about a method that was taken from its object. */
function attached (self, name) {
  if (self === undefined) {
    throw new TypeError(
      `${name}() was called without its object; call it as limiter.${name}(), or pass (...args) => limiter.${name}(...args)`
    )
  }
}

function stringOf (value, name) {
  if (value !== undefined && typeof value !== 'string') {
    throw new TypeError(`${name} is ${show(value)}; must be text`)
  }
  return value
}

function functionOf (value, name) {
  if (typeof value !== 'function') throw new TypeError(`${name} is ${show(value)}; must be a function`)
  return value
}

function signalOf (value) {
  if (value === undefined || value === null) return undefined
  if (typeof value.aborted !== 'boolean' || typeof value.addEventListener !== 'function') {
    throw new TypeError(`signal is ${show(value)}; must be an AbortSignal`)
  }
  return value
}

/** Returns limits as the compiled module reads them: text as it is, a policy as a table of TOML. */
function limitsOf (value) {
  const limits = Array.isArray(value) ? value : [value]
  return limits.map((limit) => {
    if (typeof limit === 'string') return limit
    if (limit === null || typeof limit !== 'object') {
      throw new TypeError(`the limit is ${show(limit)}; must be text such as "10/s" or a policy`)
    }
    return { body: tableOf(limit) }
  })
}

function tableOf (policy) {
  return linesOf(policy).join('\n')
}

function linesOf (policy) {
  const given = Object.entries(policy).filter(([, value]) => value !== undefined)
  return given.map(([name, value]) => {
    const key = name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
    if (!/^[a-z_]+$/.test(key)) throw new TypeError(`a policy has no key ${show(name)}`)
    if (typeof value === 'number' && SPANS.has(key)) value = `${spanNs(value, name)}ns`
    if (value !== null && typeof value === 'object') return `${key} = { ${linesOf(value).join(', ')} }`
    if (!['string', 'number', 'boolean'].includes(typeof value)) {
      throw new TypeError(`${name} of a policy is ${show(value)}; must be text, a number, a boolean or an object`)
    }
    if (typeof value === 'number' && !Number.isFinite(value)) {
      throw new RangeError(`${name} of a policy is ${value}; must be finite`)
    }
    return `${key} = ${JSON.stringify(value)}`
  })
}

module.exports = { attached, functionOf, limitsOf, optionalSpanNs, optionsOf, permitsOf, signalOf, spanNs, stringOf }
