// Loads the compiled module: of this folder, where it was built here, or of the package for the
// platform, which npm installs as an optional dependency.
'use strict'

const { existsSync } = require('node:fs')
const { join } = require('node:path')

function platform () {
  const { platform, arch } = process
  if (platform === 'win32') return `${platform}-${arch}-msvc`
  if (platform !== 'linux') return `${platform}-${arch}`
  return `${platform}-${arch}-${isGnu() ? 'gnu' : 'musl'}`
}

// Only glibc says its version in the report.
function isGnu () {
  const { report } = process
  const { excludeNetwork } = report
  // Otherwise the report looks up the names of all peers.
  report.excludeNetwork = true
  const { glibcVersionRuntime } = report.getReport().header
  report.excludeNetwork = excludeNetwork
  return glibcVersionRuntime !== undefined
}

function load () {
  const own = join(__dirname, '..', 'rategate.node')
  if (existsSync(own)) return require(own)
  const name = `@rategate/${platform()}`
  try {
    return require(name)
  } catch (cause) {
    throw new Error(
      `rategate has no compiled module here: neither ${own} nor the package ${name}. ` +
        'Install without --omit=optional on a platform that it is published for, or build it.',
      { cause }
    )
  }
}

module.exports = load()
