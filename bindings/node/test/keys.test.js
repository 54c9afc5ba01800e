// Keys of requests and fields of responses. The tables of reports are those of the layer for tower.
import assert from 'node:assert/strict'
import { test } from 'node:test'

import { ManualClock } from 'rategate'
import { client, header, method, path, peer, rateLimit } from 'rategate/express'

import { Fields, announcedOf } from '../node_modules/rategate/lib/http/fields.cjs'
import { AMBIGUOUS, sourceOf } from '../node_modules/rategate/lib/http/keys.cjs'
import { Refusal } from '../node_modules/rategate/lib/http/refusal.cjs'

/** Returns a request of a peer, with its lines of headers. */
function request (remoteAddress, ...rawHeaders) {
  const headers = {}
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at].toLowerCase()
    headers[name] = headers[name] === undefined ? rawHeaders[at + 1] : `${headers[name]}, ${rawHeaders[at + 1]}`
  }
  return { socket: { remoteAddress }, headers, rawHeaders, method: 'GET', url: '/a/b?c=d' }
}

/** Returns a request of a peer with these lines of both fields. */
function behind (remoteAddress, lines) {
  return request(remoteAddress, ...lines.flatMap((line) => ['X-Forwarded-For', line, 'Forwarded', line]))
}

test('clients are named as far as proxies are trusted', () => {
  const inside = ['10.0.0.0/8', 'fd00::/8']
  const table = [
    ['10.0.0.1', 0, ['6.6.6.6'], '10.0.0.1'],
    ['10.0.0.1', 1, ['6.6.6.6', '192.0.2.1'], '192.0.2.1'],
    ['10.0.0.1', 2, ['192.0.2.1:4711, [fd00::2]:80'], '192.0.2.1'],
    ['10.0.0.1', 2, ['192.0.2.1'], '10.0.0.1'],
    ['10.0.0.1', 255, ['192.0.2.1'], '10.0.0.1'],
    ['10.0.0.1', 1e9, ['192.0.2.1'], '10.0.0.1'],
    ['10.0.0.1', 2, ['_a, 10.0.0.2'], '_a@10.0.0.2'],
    ['10.0.0.1', 1, ['caf\xe9'], '10.0.0.1'],
    [undefined, 1, ['192.0.2.1'], '192.0.2.1'],
    [undefined, 0, ['192.0.2.1'], undefined],
    ['192.0.2.9', inside, ['6.6.6.6, 10.0.0.2'], '192.0.2.9'],
    ['::ffff:10.0.0.1', inside, ['6.6.6.6, 192.0.2.1, 10.0.0.3', 'fd00::2'], '192.0.2.1'],
    ['10.0.0.1', inside, [], '10.0.0.1'],
    ['fd00::1', inside, ['2001:db8:1:2::7'], '2001:db8:1:2::/64'],
    [undefined, inside, ['192.0.2.1'], undefined]
  ]
  for (const [address, trust, lines, expected] of table) {
    assert.equal(client({ trust })(behind(address, lines)), expected, `${address} ${trust} ${lines}`)
  }
})

test('a connection has the client of each of its requests', () => {
  const source = client({ trust: 1 })
  const { socket } = request('10.0.0.1')
  const key = (...lines) => source({ ...behind('', lines), socket })
  assert.deepEqual([key('192.0.2.1'), key('192.0.2.2'), key('192.0.2.2'), key(), key('192.0.2.1')],
    ['192.0.2.1', '192.0.2.2', '192.0.2.2', '10.0.0.1', '192.0.2.1'])
  // The address is gone once the connection has ended.
  const byPeer = peer()
  assert.equal(byPeer({ socket }), '10.0.0.1')
  socket.remoteAddress = undefined
  assert.equal(byPeer({ socket }), '10.0.0.1')
})

test('one field is read and the other is not', () => {
  const given = request('10.0.0.1', 'X-Forwarded-For', '192.0.2.1', 'Forwarded', 'for=192.0.2.2', 'X-Real-IP', '192.0.2.3')
  for (const [field, expected] of [[undefined, '192.0.2.1'], ['Forwarded', '192.0.2.2'], ['X-Real-IP', '192.0.2.3']]) {
    assert.equal(client({ trust: 1, field })(given), expected)
  }
  const grouped = client({ trust: 1, groupV6: 56 })
  const key = (line) => grouped(behind('10.0.0.1', [line]))
  assert.equal(key('2001:db8:0:12::1'), key('[2001:db8:0:34::9]:80'))
  assert.notEqual(key('2001:db8:0:12::1'), key('2001:db8:1:12::1'))
})

test('other sources read the head', () => {
  const key = (...values) => header('X-Api-Key')(request('1.1.1.1', ...values.flatMap((value) => ['x-api-key', value])))
  assert.deepEqual([key(), key('a'), key(''), key('a', 'b')], [undefined, 'a', '', AMBIGUOUS])
  assert.deepEqual([method(request()), path(request()), path({ ...request(), originalUrl: '/mount/a?b' })], ['GET', '/a/b', '/mount/a'])
  assert.deepEqual([peer()(request('::1')), peer()(request('fe80::1%eth0')), peer()(request(undefined)), peer()({})], ['::/64', 'fe80::/64', undefined, undefined])
  const joined = sourceOf([header('x-user'), method])
  assert.equal(joined(request('1.1.1.1', 'X-User', 'u1')), '2:u1,3:GET,')
  assert.equal(joined(request('1.1.1.1')), undefined)
  assert.equal(joined(request('1.1.1.1', 'X-User', 'u1', 'X-User', 'u2')), AMBIGUOUS)
})

/** Returns the fields that are written, as lines in the order of their names. */
function written (options, remaining, moreAfter, there = {}) {
  const fields = new Map(Object.entries(there))
  const announced = announcedOf(options)
  const headers = { get: (to, name) => to.get(name), set: (to, name, value) => to.set(name, value) }
  new Fields(announced).write(remaining, moreAfter, headers, fields)
  return [...fields].map(([name, value]) => `${name.toLowerCase()}: ${value}`).sort()
}

test('golden lines of both dialects', () => {
  const lines = (dialect, moreAfter = 29_001) => written({ quota: 100, window: '60s', dialects: [dialect] }, 50, moreAfter)
  assert.deepEqual(lines('current'), ['ratelimit-policy: "default";q=100;w=60', 'ratelimit: "default";r=50;t=30'])
  assert.deepEqual(lines('legacy'), ['x-ratelimit-limit: 100', 'x-ratelimit-remaining: 50', 'x-ratelimit-reset: 30'])
  assert.deepEqual(lines('current', null), ['ratelimit-policy: "default";q=100;w=60', 'ratelimit: "default";r=50'])
  assert.equal(written({ quota: 100, window: '60s', dialects: ['legacy'] }, 100, null)[2], 'x-ratelimit-reset: 0')
  const value = (options) => written(options, 0, null)[0]
  assert.equal(value({ name: 'daily', quota: 1000, window: '86400s' }), 'ratelimit-policy: "daily";q=1000;w=86400')
  assert.equal(value({ name: 'a b', quota: 0, window: 1500 }), 'ratelimit-policy: "a b";q=0;w=2')
  assert.equal(value({ name: 'q";q=9\\', quota: 1, window: '1ns' }), 'ratelimit-policy: "q\\";q=9\\\\";q=1;w=1')
  assert.equal(value({ name: 'tpm', quota: 90_000, window: '1min', unit: 'input-tokens' }), 'ratelimit-policy: "tpm";q=90000;w=60;qu="input-tokens"')
  assert.equal(value({ name: 'p', quota: 5, unit: 'concurrent-requests' }), 'ratelimit-policy: "p";q=5;qu="concurrent-requests"')
})

test('what remains is written anew when either of its numbers changes', () => {
  const fields = new Fields(announcedOf({ quota: 9, window: '9s' }))
  const headers = { get: () => undefined, set: (to, name, value) => to.set(name, value) }
  for (const [remaining, moreAfter, text] of [
    [7, null, 'r=7'], [7, 1000, 'r=7;t=1'], [7, 999, 'r=7;t=1'], [7, 1001, 'r=7;t=2'], [6, 1001, 'r=6;t=2'],
    [6, 0, 'r=6;t=0'], [6, null, 'r=6'], [0, null, 'r=0'], [7, 1000, 'r=7;t=1']
  ]) {
    const response = new Map()
    fields.write(remaining, moreAfter, headers, response)
    assert.equal(response.get('RateLimit'), `"default";${text}`)
  }
})

test('fields of an outer layer stay', () => {
  const outer = { RateLimit: '"a";r=1', 'RateLimit-Policy': '"a";q=2' }
  assert.deepEqual(written({ quota: 9, window: '1s' }, 7, 1, outer), ['ratelimit-policy: "a";q=2, "default";q=9;w=1', 'ratelimit: "a";r=1, "default";r=7;t=1'])
  const legacy = (there) => written({ quota: 9, window: '1s', dialects: ['legacy'] }, 7, 1, { 'X-RateLimit-Remaining': there })
  for (const there of ['7', '8', 'none']) assert.ok(legacy(there).includes('x-ratelimit-remaining: 7'), there)
  assert.deepEqual(legacy('3'), ['x-ratelimit-remaining: 3'])
})

test('golden problems', () => {
  assert.equal(JSON.stringify(new Refusal('over-limit', 1_500_001_000n, 'a"b')),
    '{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,' +
    '"detail":"The limit is reached.","retry_after":2,"retry_after_ms":1501,"violated-policies":["a\\"b"]}')
  assert.equal(JSON.stringify(new Refusal('closed', null, 'p')),
    '{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"The limiter is closed."}')
  const ms = (ns) => new Refusal('over-limit', ns).problem().retry_after_ms
  assert.deepEqual([0n, 1n, 7_000_000n, 7_000_001n].map(ms), [1, 1, 7, 8])
})

test('what makes no sense is refused with a sentence', () => {
  const wrong = [
    ['5/s', { key: 5 }, TypeError, /^key is 5; must be/],
    ['5/s', { key: [] }, TypeError, /^key is \[\]/],
    ['5/s', { keys: peer() }, TypeError, /no option 'keys'/],
    ['5/s', { missing: 'ignore' }, TypeError, /^missing is/],
    ['5/s', { cost: 5 }, TypeError, /^cost is 5/],
    ['5/s', { waitWithin: 'soon' }, RangeError, /soon/],
    ['5/s', { headers: { name: 'a\r\nSet-Cookie: b=c' } }, RangeError, /printable/],
    ['5/s', { headers: { name: 'tägl' } }, RangeError, /printable/],
    ['5/s', { headers: { name: '' } }, RangeError, /1 to 128/],
    ['5/s', { headers: { name: 'x'.repeat(129) } }, RangeError, /1 to 128/],
    ['5/s', { headers: { window: 0 } }, RangeError, /no length/],
    ['5/s', { headers: { unit: 'smiles' } }, RangeError, /^unit is/],
    ['5/s', { headers: { dialects: ['older'] } }, RangeError, /^dialects is/],
    ['5/s; 9/min', {}, RangeError, /several limits/],
    ['five', {}, RangeError, /five/],
    [undefined, {}, TypeError, /^the limit is undefined/]
  ]
  for (const [limit, options, kind, message] of wrong) {
    assert.throws(() => rateLimit(limit, options), (error) => error.constructor === kind && message.test(error.message), JSON.stringify(options))
  }
  for (const options of [undefined, {}, { trust: -1 }, { trust: 1.5 }, { trust: '10.0.0.0/8' }, { trust: [5] }, { trust: 1, field: 'a b' }]) {
    assert.throws(() => client(options), TypeError)
  }
  assert.throws(() => client({ trust: ['10.0.0.1/8'] }), (error) => error instanceof RangeError && error.message.includes('10.0.0.1/8'))
  for (const groups of [{ groupV6: 129 }, { groupV4: 33 }, { groupV4: 256 }, { groupV4: 1.5 }]) assert.throws(() => peer(groups), RangeError)
  assert.throws(() => header(''), TypeError)
  const limit = rateLimit('5/s', { key: () => ({}), clock: new ManualClock() })
  assert.throws(() => limit(request('1.1.1.1'), {}, () => {}), /the key of a request is {}/)
  assert.equal(limit.counts.passed, 0)
})
