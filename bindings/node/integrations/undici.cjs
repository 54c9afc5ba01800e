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
    if (pace.mayStart(server)) return dispatch(request, new Handler(handler, pace, server, () => {}))
    const begin = (end) => dispatch(request, new Handler(handler, pace, server, end))
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
  #pace
  #server
  #end

  constructor (handler, pace, server, end) {
    this.#handler = handler
    this.#pace = pace
    this.#server = server
    this.#end = end
  }

  onRequestStart (controller, context) {
    return this.#handler.onRequestStart(controller, context)
  }

  onRequestUpgrade (controller, status, headers, socket) {
    this.#ended()
    return this.#handler.onRequestUpgrade?.(controller, status, headers, socket)
  }

  onResponseStart (controller, status, headers, message) {
    if (status >= 200) {
      this.#ended()
      this.#pace.follow(this.#server, status, (name) => [headers[name] ?? []].flat())
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
    this.#ended()
    return this.#handler.onResponseError?.(controller, error)
  }

  /** Ends an operation in flight, once. */
  #ended () {
    const end = this.#end
    this.#end = () => {}
    end()
  }
}

module.exports = { pace }
