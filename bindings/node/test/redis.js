// A redis-server that tests start.
import { execFileSync, spawn } from 'node:child_process'
import { connect, createServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'

export const hasServer = (() => {
  try {
    execFileSync('redis-server', ['--version'])
    return true
  } catch {
    return false
  }
})()
export const options = { skip: hasServer ? false : 'there is no redis-server here' }

// Longer than any delay of a busy machine: what is tested is not how soon a reply comes.
export const BUDGET = '2s'

export function freePort () {
  return new Promise((resolve) => {
    const listener = createServer().listen(0, '127.0.0.1', () => {
      const { port } = listener.address()
      listener.close(() => resolve(port))
    })
  })
}

/** A redis-server on a free port, without a file. */
export class Server {
  static async start (...more) {
    const server = new Server()
    server.port = await freePort()
    server.more = more
    server.url = `redis://127.0.0.1:${server.port}`
    await server.start()
    return server
  }

  async start () {
    this.process = spawn('redis-server', ['--port', this.port, '--save', '', ...this.more], { stdio: 'ignore' })
    for (let tries = 0; tries < 500; tries++) {
      const connects = await new Promise((resolve) => {
        const socket = connect(this.port, '127.0.0.1')
        socket.once('connect', () => resolve(true)).once('error', () => resolve(false))
        socket.once('connect', () => socket.destroy())
      })
      if (connects) return
      await sleep(10)
    }
    throw new Error('redis-server does not start')
  }

  async kill () {
    if (this.process.signalCode !== null) return
    const ended = new Promise((resolve) => this.process.once('exit', resolve))
    this.process.kill('SIGKILL')
    await ended
  }
}
