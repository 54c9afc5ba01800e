// Lets requests over the limit of a Koa server wait for a second instead of refusing them.
import assert from 'node:assert/strict'
import { once } from 'node:events'

import Koa from 'koa'
import { rateLimit } from 'rategate/koa'

const app = new Koa()
app.use(rateLimit('50/s burst 2', { waitWithin: '1s' }))
app.use((context) => { context.body = 'hello' })

const server = app.listen(0, '127.0.0.1')
await once(server, 'listening')
const begin = performance.now()
const responses = await Promise.all(Array.from({ length: 12 }, () => fetch(`http://127.0.0.1:${server.address().port}/`)))
const took = performance.now() - begin
console.log(`12 requests in ${Math.round(took)} ms: ${responses.map((response) => response.status)}`)
assert.ok(responses.every((response) => response.status === 200) && took >= 200)
server.close()
