// A load of a second, whose requests do not wait for each other. Run it with `node load.mjs`.
import { setTimeout as sleep } from 'node:timers/promises'

import { OpenLoop } from 'rategate'

const request = () => sleep(30 * Math.random())

const loop = new OpenLoop('ramp:0/s>200/s@500ms then constant:200/s@500ms')
const times = []
const requests = []
for await (const release of loop) {
  requests.push(request().then(() => times.push(loop.now - release.scheduledAt)))
}
await Promise.all(requests)
times.sort((a, b) => a - b)
console.log(`${times.length} requests; half of them within ${times[times.length >> 1].toFixed(1)} ms`)
