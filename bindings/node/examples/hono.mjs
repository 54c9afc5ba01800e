// Limits the users of a Hono server by their API key, and answers with text of its own.
import assert from 'node:assert/strict'

import { serve } from '@hono/node-server'
import { Hono } from 'hono'
import { header, rateLimit } from 'rategate/hono'

const app = new Hono()
app.use(rateLimit('2 per any minute', {
  key: header('x-api-key'),
  missing: 'refuse',
  answer: (refusal, context) => context.text(refusal.detail, refusal.status)
}))
app.get('/', (context) => context.text('hello'))

const server = serve({ fetch: app.fetch, hostname: '127.0.0.1', port: 0 }, async ({ port }) => {
  const get = async (headers) => {
    const response = await fetch(`http://127.0.0.1:${port}/`, { headers })
    return `${response.status} ${await response.text()}`
  }
  const key = { 'X-Api-Key': 'k1' }
  const seen = [await get(key), await get(key), await get(key), await get({})]
  console.log(seen)
  assert.deepEqual(seen, ['200 hello', '200 hello', '429 The limit is reached.', '400 The request does not name its client.'])
  server.close()
})
