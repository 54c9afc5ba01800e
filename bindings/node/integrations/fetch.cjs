// A fetch that waits as its limiter and the servers ask.
'use strict'

const { functionOf } = require('../lib/arguments.cjs')
const { Pace } = require('../lib/http/pace.cjs')

function pace (fetch = globalThis.fetch, options) {
  functionOf(fetch, 'fetch')
  const pace = new Pace(options)
  return async function pacedFetch (input, init) {
    const { origin } = new URL(input instanceof Request ? input.url : input)
    const signal = init?.signal ?? (input instanceof Request ? input.signal : undefined)
    const sent = await pace.start(origin, signal)
    try {
      const response = await fetch(input, init)
      sent.follow(response.status, [...response.headers].flat())
      return response
    } finally {
      sent.end()
    }
  }
}

module.exports = { pace }
