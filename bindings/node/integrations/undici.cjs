// An interceptor for dispatchers of undici, such as agents and pools.
'use strict'

const { Pace } = require('../lib/http/pace.cjs')

function pace (options) {
  const pace = new Pace(options)
  return (dispatch) => function paced (request, handler) {
    if (typeof handler?.onRequestStart !== 'function') {
      throw new TypeError('the handler has no onRequestStart; rategate/undici needs undici 7 or later')
    }
    const server = String(request.origin ?? '')
    const begin = (sent) => {
      try {
        return dispatch(request, new Handler(handler, sent))
      } catch (error) {
        sent.end()
        throw error
      }
    }
    const started = pace.tryStart(server)
    if (started !== undefined) return begin(started)
    pace.start(server, request.signal ?? undefined).then(begin).catch((error) => {
      handler.onResponseError(undefined, error)
    })
    // The dispatcher is not busy: only this request waits.
    return true
  }
}

/** A handler that reads the hints of the response. */
class Handler {
  #handler
  #sent

  constructor (handler, sent) {
    this.#handler = handler
    this.#sent = sent
  }

  onRequestStart (controller, context) {
    return this.#handler.onRequestStart(controller, context)
  }

  onRequestUpgrade (controller, status, headers, socket) {
    this.#sent.end()
    return this.#handler.onRequestUpgrade?.(controller, status, headers, socket)
  }

  onResponseStart (controller, status, headers, message) {
    if (status >= 200) {
      this.#sent.follow(status, Object.entries(headers).flatMap(([name, lines]) => [lines].flat().flatMap((line) => [name, line])))
      this.#sent.end()
    }
    return this.#handler.onResponseStart?.(controller, status, headers, message)
  }

  onResponseData (controller, data) {
    return this.#handler.onResponseData?.(controller, data)
  }

  onResponseEnd (controller, trailers) {
    return this.#handler.onResponseEnd?.(controller, trailers)
  }

  onResponseError (controller, error) {
    this.#sent.end()
    return this.#handler.onResponseError?.(controller, error)
  }
}

module.exports = { pace }
