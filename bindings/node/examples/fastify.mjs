// Limits a Fastify server: all routes, and one of them more strictly.
import assert from 'node:assert/strict'

import Fastify from 'fastify'
import { rateLimit } from 'rategate/fastify'

const app = Fastify()
app.register(rateLimit('100/s burst 20', { headers: { name: 'all' } }))
const { onRequest } = rateLimit('2 per any minute', { headers: { name: 'log-ins' } })
app.get('/', async () => 'hello')
app.post('/log-in', { onRequest }, async () => 'welcome')

const url = await app.listen({ host: '127.0.0.1', port: 0 })
const statuses = []
for (let turn = 0; turn < 3; turn++) statuses.push((await fetch(`${url}/log-in`, { method: 'POST' })).status)
console.log(statuses)
assert.deepEqual(statuses, [200, 200, 429])
const response = await fetch(url)
console.log(response.headers.get('RateLimit-Policy'), response.headers.get('RateLimit'))
assert.equal(response.status, 200)
await app.close()
