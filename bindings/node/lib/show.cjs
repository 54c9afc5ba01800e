// Values in messages, and in JSON.
'use strict'

const { inspect } = require('node:util')

function show (value) {
  return inspect(value, { depth: 0, breakLength: Infinity, maxStringLength: 80 })
}

/** Returns values as JSON has them: nanoseconds, which are bigints, as text. */
function plain (values) {
  const entries = Object.entries(values)
  return Object.fromEntries(entries.map(([name, value]) => [name, typeof value === 'bigint' ? String(value) : value]))
}

/** Has the getters of a class shown by `console.log`, and in JSON, as its own properties would be. */
function showsItsGetters (Class, names) {
  const read = (object) => Object.fromEntries(names.map((name) => [name, object[name]]))
  Object.defineProperties(Class.prototype, {
    toJSON: { configurable: true, writable: true, value () { return plain(read(this)) } },
    [inspect.custom]: {
      configurable: true,
      writable: true,
      value (depth, options) { return `${Class.name} ${inspect(read(this), options)}` }
    }
  })
}

module.exports = { plain, show, showsItsGetters }
