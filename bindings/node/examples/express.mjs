// Limits the clients of an Express server, which is behind one proxy in 127.0.0.0/8.
import assert from 'node:assert/strict'
import { once } from 'node:events'

import express from 'express'
import { client, rateLimit } from 'rategate/express'

const app = express()
const limit = rateLimit('5 per any minute', { key: client({ trust: ['127.0.0.0/8'] }) })
app.use(limit)
app.get('/', (request, response) => response.send('hello'))

const server = app.listen(0, '127.0.0.1')
await once(server, 'listening')
const url = `http://127.0.0.1:${server.address().port}/`
const get = (address) => fetch(url, { headers: { 'X-Forwarded-For': address } })

for (let left = 4; left >= 0; left--) {
  const response = await get('192.0.2.7')
  assert.match(response.headers.get('RateLimit'), new RegExp(`^"default";r=${left};t=\\d+$`))
}
const refused = await get('192.0.2.7')
console.log(refused.status, `Retry-After: ${refused.headers.get('Retry-After')}`, await refused.text())
assert.deepEqual([refused.status, (await get('192.0.2.8')).status], [429, 200])
console.log(limit.counts)
server.close()
