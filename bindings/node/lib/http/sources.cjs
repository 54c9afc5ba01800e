// The sources of keys that users name.
'use strict'

const { client, header, method, path, peer } = require('./keys.cjs')

module.exports = { client, header, method, path, peer }
