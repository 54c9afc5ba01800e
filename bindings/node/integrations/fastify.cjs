// A plugin for Fastify.
'use strict'

const { CONTENT_TYPE, GONE, Gate } = require('../lib/http/gate.cjs')

const FIELDS = {
  get: (reply, name) => reply.getHeader(name),
  set: (reply, name, value) => reply.header(name, value)
}

function rateLimit (limit, options) {
  const gate = new Gate(limit, options)

  /** The hook, for single routes. */
  async function onRequest (request, reply) {
    const decided = await gate.decide(request.raw, reply.raw, request)
    if (decided === GONE) return reply.hijack()
    gate.write(decided, FIELDS, reply)
    const { refusal } = decided
    if (refusal === null) return
    reply.code(refusal.status)
    if (gate.answer) return gate.answer(refusal, request, reply)
    return reply.type(CONTENT_TYPE).serializer(String).send(JSON.stringify(refusal))
  }

  function plugin (instance, _options, done) {
    instance.addHook('onRequest', onRequest)
    done()
  }
  // It is for all routes of the instance that registers it, and not for those of a child only.
  plugin[Symbol.for('skip-override')] = true
  plugin[Symbol.for('fastify.display-name')] = 'rategate'
  return gate.handle(Object.assign(plugin, { onRequest }))
}

module.exports = { rateLimit, ...require('../lib/http/sources.cjs') }
