// A middleware for Express, Connect and others that call `(request, response, next)`.
'use strict'

const { CONTENT_TYPE, GONE, Gate } = require('../lib/http/gate.cjs')

const FIELDS = {
  get: (response, name) => response.getHeader(name),
  set: (response, name, value) => response.setHeader(name, value)
}

function rateLimit (limit, options) {
  const gate = new Gate(limit, options)

  function finish (decided, request, response, next) {
    // No one reads the response of a client that has left.
    if (decided === GONE) return
    const { refusal } = decided
    gate.write(decided, FIELDS, response)
    if (refusal === null) return next()
    response.statusCode = refusal.status
    if (gate.answer) return gate.answer(refusal, request, response, next)
    response.setHeader('Content-Type', CONTENT_TYPE)
    response.end(JSON.stringify(refusal))
  }

  return gate.handle(function rateLimit (request, response, next) {
    const decided = gate.decide(request, response, request)
    if (!(decided instanceof Promise)) return finish(decided, request, response, next)
    decided.then((decided) => finish(decided, request, response, next)).catch(next)
  })
}

module.exports = { rateLimit, ...require('../lib/http/sources.cjs') }
