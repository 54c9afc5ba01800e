// Limits of several processes over a redis-server that is started here: calls of a second, of many
// tasks at once and one by one.
import { spawn } from 'node:child_process'
import { createServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'

import Redis from 'ioredis'
import { RateLimiterRedis } from 'rate-limiter-flexible'
import { Shared } from 'rategate'

const ROUNDS = 5
const MANY = 1_000_000_000

function freePort () {
  return new Promise((resolve) => {
    const listener = createServer().listen(0, '127.0.0.1', () => {
      const { port } = listener.address()
      listener.close(() => resolve(port))
    })
  })
}

/** Returns the most calls of a second, in thousands. */
async function rate (call, tasks, calls) {
  const begin = performance.now()
  await Promise.all(Array.from({ length: tasks }, async () => {
    for (let at = 0; at < calls / tasks; at++) await call()
  }))
  return calls / (performance.now() - begin)
}

async function table (title, tasks, contenders) {
  const best = contenders.map(() => 0)
  for (let round = 0; round < ROUNDS; round++) {
    for (const [at, { call, calls }] of contenders.entries()) {
      best[at] = Math.max(best[at], await rate(call, tasks, calls))
    }
  }
  console.log(`\n${title}`)
  for (const [at, { name }] of contenders.entries()) {
    const ratio = at === 0 ? '' : `  ${(best[0] / best[at]).toFixed(2)}x`
    console.log(`  ${name.padEnd(44)}${best[at].toFixed(1).padStart(9)} thousand calls/s${ratio}`)
  }
}

export async function shared () {
  const port = await freePort()
  const server = spawn('redis-server', ['--port', port, '--save', ''], { stdio: 'ignore' })
  await sleep(500)
  const url = `redis://127.0.0.1:${port}`
  const exact = new Shared(url, `${MANY}/s`, { name: 'bench', budget: '5s' })
  const leased = new Shared(url, `${MANY}/s`, { name: 'leased', mode: 'leased', leasePermits: 100_000, budget: '5s' })
  await exact.ready()
  await leased.ready()
  const client = new Redis(port, '127.0.0.1')
  const flexible = new RateLimiterRedis({ storeClient: client, points: MANY, duration: 3600 })
  const contenders = (calls) => [
    { name: 'rategate check(key)', calls, call: () => exact.check('key') },
    { name: 'rategate acquire(key)', calls, call: () => exact.acquire('key') },
    { name: 'rategate check(key), refundable', calls, call: () => exact.check('key', 1, { refundable: true }) },
    { name: 'rategate check(key), leased', calls: calls * 4, call: () => leased.check('key') },
    { name: 'rate-limiter-flexible consume(key)', calls, call: () => flexible.consume('key') }
  ]
  await table('Redis, 100 tasks', 100, contenders(50_000))
  await table('Redis, one by one', 1, contenders(5_000))
  client.disconnect()
  server.kill('SIGKILL')
}
