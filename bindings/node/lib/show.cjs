// Values in messages.
'use strict'

const { inspect } = require('node:util')

function show (value) {
  return inspect(value, { depth: 0, breakLength: Infinity, maxStringLength: 80 })
}

module.exports = { show }
