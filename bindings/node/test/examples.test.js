// The examples.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

const examples = new URL('../examples/', import.meta.url)
test('each example shows what it says', async () => {
  const files = readdirSync(examples)
  const run = (file) => promisify(execFile)(process.execPath, [fileURLToPath(new URL(file, examples))], { timeout: 60_000 })
  for (const { stdout } of await Promise.all(files.map(run))) assert.ok(stdout.length > 0)
  assert.equal(files.length, 7)
})
