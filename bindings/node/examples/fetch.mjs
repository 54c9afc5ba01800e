// A fetch that makes 20 calls a second, and waits when the server asks for it.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'

import { Limiter } from 'rategate'
import { pace } from 'rategate/fetch'

let held = 0
let calls = 0
const server = createServer((request, response) => {
  // It refuses the third, and says until when.
  if (++calls === 3) {
    held = performance.now()
    response.writeHead(429, { 'Retry-After': '1' })
  }
  response.end()
}).listen(0, '127.0.0.1')
await once(server, 'listening')

const polite = pace(fetch, { limiter: new Limiter('20/s burst 5'), onHold: (ms) => console.log(`a hold of ${ms} ms`) })
const url = `http://127.0.0.1:${server.address().port}/`
for (let turn = 0; turn < 3; turn++) console.log((await polite(url)).status)
await polite(url)
const waited = performance.now() - held
console.log(`the next one came ${Math.round(waited)} ms later`)
assert.ok(waited >= 1000)
server.close()
