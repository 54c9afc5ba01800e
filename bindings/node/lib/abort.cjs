// What an abort ends. One signal may end many waits, and Node warns of more than ten listeners.
'use strict'

const callsOf = new WeakMap()

/** Calls `call` once the signal aborts. Returns the function that takes that back. */
function onAbort (signal, call) {
  let calls = callsOf.get(signal)
  if (calls === undefined) {
    calls = new Set()
    callsOf.set(signal, calls)
  }
  if (calls.size === 0) signal.addEventListener('abort', abortAll, { once: true })
  calls.add(call)
  return () => {
    if (calls.delete(call) && calls.size === 0) signal.removeEventListener('abort', abortAll)
  }
}

function abortAll () {
  const calls = callsOf.get(this)
  for (const call of [...calls]) {
    calls.delete(call)
    call()
  }
}

module.exports = { onAbort }
