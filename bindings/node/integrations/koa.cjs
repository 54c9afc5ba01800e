// A middleware for Koa.
'use strict'

const { CONTENT_TYPE, GONE, Gate } = require('../lib/http/gate.cjs')

const FIELDS = {
  // Koa has an empty text for a field that is not there.
  get: (context, name) => context.response.get(name) || undefined,
  set: (context, name, value) => context.set(name, value)
}

/** Koa drops the fields of the response of a handler that throws, and sets those of the error. */
const FIELDS_OF_ERROR = {
  get: (headers, name) => headers[name],
  set: (headers, name, value) => { headers[name] = value }
}

function rateLimit (limit, options) {
  const gate = new Gate(limit, options)
  return gate.handle(async function rateLimit (context, next) {
    const decided = await gate.decide(context.req, context.res, context)
    if (decided === GONE) return
    gate.write(decided, FIELDS, context)
    const { refusal } = decided
    if (refusal === null) {
      try {
        return await next()
      } catch (error) {
        if (error instanceof Error && Object.isExtensible(error)) {
          error.headers = { ...error.headers }
          gate.write(decided, FIELDS_OF_ERROR, error.headers)
        }
        throw error
      }
    }
    context.status = refusal.status
    if (gate.answer) return gate.answer(refusal, context)
    context.set('Content-Type', CONTENT_TYPE)
    context.body = JSON.stringify(refusal)
  })
}

module.exports = { rateLimit, ...require('../lib/http/sources.cjs') }
