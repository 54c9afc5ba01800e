// A middleware for Hono, served by @hono/node-server.
'use strict'

const { CONTENT_TYPE, GONE, Gate } = require('../lib/http/gate.cjs')

const FIELDS = {
  get: (context, name) => context.res.headers.get(name),
  // Copies the response first, if its fields cannot change.
  set: (context, name, value) => context.header(name, value)
}

function rateLimit (limit, options) {
  const gate = new Gate(limit, options)
  return gate.handle(async function rateLimit (context, next) {
    const { incoming, outgoing } = context.env ?? {}
    if (incoming === undefined || outgoing === undefined) {
      throw new TypeError('the context has no env.incoming; serve the application with @hono/node-server')
    }
    const decided = await gate.decide(incoming, outgoing, context)
    const { refusal } = decided
    if (decided === GONE) return new Response(null)
    if (refusal === null) {
      await next()
      gate.write(decided, FIELDS, context)
      return
    }
    context.res = gate.answer
      ? await gate.answer(refusal, context)
      : new Response(JSON.stringify(refusal), { status: refusal.status, headers: { 'Content-Type': CONTENT_TYPE } })
    gate.write(decided, FIELDS, context)
  })
}

module.exports = { rateLimit, ...require('../lib/http/sources.cjs') }
