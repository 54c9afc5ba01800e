// A middleware for Koa.
'use strict'

const { CONTENT_TYPE, GONE, Gate } = require('../lib/http/gate.cjs')

function rateLimit (limit, options) {
  const gate = new Gate(limit, options)
  return gate.handle(async function rateLimit (context, next) {
    const decided = await gate.decide(context.req, context.res, context)
    if (decided === GONE) return
    gate.write(decided, {
      // Koa has an empty text for a field that is not there.
      get: (name) => context.response.get(name) || undefined,
      set: (name, value) => context.set(name, value)
    })
    const { refusal } = decided
    if (refusal === null) return next()
    context.status = refusal.status
    if (gate.answer) return gate.answer(refusal, context)
    context.set('Content-Type', CONTENT_TYPE)
    context.body = JSON.stringify(refusal)
  })
}

module.exports = { rateLimit, ...require('../lib/http/sources.cjs') }
