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

module.exports = { plain, show }
