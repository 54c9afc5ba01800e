// An agent of undici that waits when a server says that nothing remains.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'

import { pace } from 'rategate/undici'
import { Agent, request } from 'undici'

const starts = []
const server = createServer((incoming, response) => {
  starts.push(performance.now())
  response.writeHead(200, starts.length === 1 ? { RateLimit: '"default";r=0;t=1' } : {})
  response.end()
}).listen(0, '127.0.0.1')
await once(server, 'listening')

const dispatcher = new Agent().compose(pace({ jitter: 0 }))
const url = `http://127.0.0.1:${server.address().port}/`
const get = async (options) => (await request(url, { dispatcher, ...options })).body.dump()
await get()
// It leaves the line.
await assert.rejects(get({ signal: AbortSignal.timeout(20) }), { name: 'TimeoutError' })
await get()
console.log(`the second came ${Math.round(starts[1] - starts[0])} ms after the first`)
assert.ok(starts.length === 2 && starts[1] - starts[0] >= 1000)
server.close()
