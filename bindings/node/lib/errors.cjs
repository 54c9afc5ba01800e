// The errors of a limit, and how they are made of the codes of the compiled module.
'use strict'

const { plain } = require('./show.cjs')

/** A call that a limit did not let pass. */
class RateLimitError extends Error {
  constructor (message, code) {
    super(message)
    this.code = code
  }

  // On the prototype, as that of the errors of JavaScript.
  get name () {
    return this.constructor.name
  }

  toJSON () {
    return plain({ name: this.name, message: this.message, ...this })
  }
}

/** The start lies past the timeout, or nobody knows when it is. Nothing was taken; later calls may pass. */
class TooLong extends RateLimitError {
  constructor (message, waitNs, retryAfterNs) {
    super(message, 'TOO_LONG')
    this.waitNs = waitNs
    this.retryAfterNs = retryAfterNs
  }

  get retryAfter () {
    return this.retryAfterNs === null ? null : milliseconds(this.retryAfterNs)
  }
}

/**
 * The store of a shared limit is gone, and `whenGone` is "deny", or the part of "local" does not
 * begin within the timeout. The message says why.
 */
class Unavailable extends RateLimitError {
  constructor (message, retryAfterNs) {
    super(message, 'UNAVAILABLE')
    this.retryAfterNs = retryAfterNs
  }

  get retryAfter () {
    return this.retryAfterNs === null ? null : milliseconds(this.retryAfterNs)
  }
}

/** The wait queue, or the table of keys, is full. */
class Full extends RateLimitError {
  constructor (message) {
    super(message, 'FULL')
  }
}

/** The limiter has been closed. */
class Closed extends RateLimitError {
  constructor (message) {
    super(message, 'CLOSED')
  }
}

/** No time and no retry makes this call pass. */
class Never extends RateLimitError {
  constructor (message, code = 'NEVER') {
    super(message, code)
  }
}

/** More permits than could ever pass together. */
class ExceedsCapacity extends Never {
  constructor (message) {
    super(message, 'EXCEEDS_CAPACITY')
  }
}

function milliseconds (ns) {
  return Number(ns) / 1e6
}

/** Makes the error of a code of the compiled module; any other error stays as it is. */
function typed (error) {
  const [mark, number, ...rest] = String(error.code).split(':')
  if (mark !== 'rategate') return error
  switch (number) {
    case '-1': {
      const [wait, retry] = rest
      return new TooLong(error.message, wait ? BigInt(wait) : null, retry ? BigInt(retry) : null)
    }
    case '-2':
      return new Full(error.message)
    case '-3':
      return new Closed(error.message)
    case '-4':
      return rest[0] === 'capacity' ? new ExceedsCapacity(error.message) : new Never(error.message)
    case '-6':
      return new Unavailable(error.message, rest[0] ? BigInt(rest[0]) : null)
    default:
      return new RangeError(error.message)
  }
}

/** Runs a call of the compiled module. */
function call (run) {
  try {
    return run()
  } catch (error) {
    throw typed(error)
  }
}

module.exports = {
  Closed,
  ExceedsCapacity,
  Full,
  Never,
  RateLimitError,
  TooLong,
  Unavailable,
  call,
  milliseconds,
  typed
}
