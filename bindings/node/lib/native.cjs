// Loads the compiled module: of this folder, where it was built here, or of the package for the
// platform, which npm installs as an optional dependency.
'use strict'

const { existsSync } = require('node:fs')
const { join } = require('node:path')

function platform () {
  const { platform, arch } = process
  if (platform !== 'linux') return `${platform}-${arch}`
  // Only glibc says its version there.
  const isGnu = process.report.getReport().header.glibcVersionRuntime !== undefined
  return `${platform}-${arch}-${isGnu ? 'gnu' : 'musl'}`
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
