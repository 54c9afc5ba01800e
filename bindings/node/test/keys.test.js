// Keys of requests and fields of responses, by the vectors of the layer for tower.
import assert from 'node:assert/strict'
import { test } from 'node:test'

import { ManualClock } from 'rategate'
import { client, header, method, path, peer, rateLimit } from 'rategate/express'

import { addressOf, nameOf, networkOf, textOf } from '../node_modules/rategate/lib/http/address.cjs'
import { Fields, announcedOf } from '../node_modules/rategate/lib/http/fields.cjs'
import { MAX_HOPS, forwarded, node, xForwardedFor } from '../node_modules/rategate/lib/http/forwarded.cjs'
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

/** Returns all reports of a value, as text. */
function all (next) {
  const reports = []
  for (let report; (report = next()) !== undefined;) reports.push(shown(report))
  return reports
}

/** Returns a report as text. */
function shown ({ words, hidden }) {
  return words ? textOf(words) : hidden ?? 'unknown'
}

/** A generator of numbers that does not change from run to run. */
function randomOf (seed) {
  return (below) => {
    seed = (seed * 1103515245 + 12345) % 2147483648
    return Math.floor(seed / 2147483648 * below)
  }
}

test('addresses are grouped by their first bits', () => {
  const table = [
    ['192.0.2.1', 32, 64, '192.0.2.1'],
    ['192.0.2.1', 24, 64, '192.0.2.0/24'],
    ['192.0.2.1', 0, 64, '0.0.0.0/0'],
    ['192.0.2.1', 1, 64, '128.0.0.0/1'],
    ['2001:db8:1:2:3:4:5:6', 32, 64, '2001:db8:1:2::/64'],
    ['2001:db8:1:2:3:4:5:6', 32, 56, '2001:db8:1::/56'],
    ['2001:db8:1:2:3:4:5:6', 32, 128, '2001:db8:1:2:3:4:5:6'],
    ['2001:db8:1:2:3:4:5:6', 32, 0, '::/0'],
    ['::ffff:192.0.2.1', 32, 64, '192.0.2.1'],
    ['::ffff:192.0.2.1', 24, 64, '192.0.2.0/24']
  ]
  for (const [given, groupV4, groupV6, name] of table) {
    assert.equal(nameOf(addressOf(given), { groupV4, groupV6 }), name, given)
  }
  for (const text of ['::', '::1', '1::', '1:0:0:2::3', '1::2:0:0:3', 'fe80::1:2:3:4', '1:2:3:4:5:6:7:8', '1:0:3:4:5:6:7:8', '::1.2.3.4']) {
    const words = addressOf(text)
    assert.deepEqual(addressOf(textOf(words)), words, text)
  }
  assert.equal(textOf(addressOf('1:0:0:2:0:0:0:3')), '1:0:0:2::3')
  assert.equal(textOf(addressOf('64:ff9b::192.0.2.33')), '64:ff9b::c000:221')
  for (const text of ['', '192.0.2', '0192.0.2.1', 'fe80::1%eth0', '[::1]', ':::', '1:2', 'x']) assert.equal(addressOf(text), null, text)
})

test('networks are read, and a malformed one says what would be accepted', () => {
  const valid = ['10.0.0.0/8', '0.0.0.0/0', '::/0', '192.0.2.7', '192.0.2.7/32', 'fd00::/8', '::/96']
  for (const text of valid) assert.equal(typeof networkOf(text), 'function', text)
  const wrong = {
    'beyond its length': ['10.0.0.1/8', 'fd00::1/8'],
    'more bits': ['10.0.0.0/33', '::/129', '10.0.0.0/256'],
    'write 10.0.0.0/8': ['10.0.0.0/', '10.0.0.0/+8', '10.0.0.0/-1', '10.0.0/8', '::ffff:10.0.0.0/104', '::ffff:10.0.0.1', '', 'example.com/8']
  }
  for (const [why, texts] of Object.entries(wrong)) {
    for (const text of texts) assert.throws(() => networkOf(text), (error) => error instanceof RangeError && error.message.includes(why), text)
  }
  assert.ok(networkOf('10.0.0.0/8')(addressOf('::ffff:10.1.2.3')))
  assert.ok(!networkOf('::/0')(addressOf('10.1.2.3')))
})

test('nodes are addresses, names, or neither', () => {
  const table = {
    '192.0.2.1': ['192.0.2.1', '192.0.2.1:80', '192.0.2.1:_obf', '::ffff:192.0.2.1', '[::ffff:192.0.2.1]:80'],
    '2001:db8::1': ['2001:db8::1', '[2001:db8::1]', '[2001:db8::1]:4711'],
    unknown: [
      '192.0.2.1:', '192.0.2.1:x', '192.0.2.1:123456', '192.0.2.1:80:80', '192.0.2.256', '192.0.2', '0192.0.2.1',
      '192.0.2.1 192.0.2.2', '[2001:db8::1]:', '[2001:db8::1]4711', '[2001:db8::1', '2001:db8::1]', '[192.0.2.1]', '[]',
      'fe80::1%eth0', '_', '_no spaces', 'unknown', 'unknown:80', 'example.com', '-1', '"192.0.2.1"', '', '\xff\xfe', '_'.repeat(300)
    ],
    _hidden: ['_hidden'],
    _SEVKISEK: ['_SEVKISEK:80'],
    '_a.b-c_1': ['_a.b-c_1:_p']
  }
  for (const [expected, texts] of Object.entries(table)) {
    for (const text of texts) assert.equal(shown(node(text)), expected, text)
  }
})

test('reports are read from the right, as far as they count', () => {
  const read = (value) => all(xForwardedFor(value))
  assert.deepEqual(read('6.6.6.6, 192.0.2.1,  192.0.2.2 ,, ,192.0.2.3,'), ['192.0.2.3', '192.0.2.2', '192.0.2.1', '6.6.6.6'])
  const long = read('6.6.6.6,'.repeat(10_000) + '192.0.2.1')
  assert.deepEqual([long.length, long[0]], [MAX_HOPS, '192.0.2.1'])
  assert.deepEqual(read(`${'6'.repeat(8192)}, 192.0.2.1`), ['192.0.2.1', 'unknown'])
  assert.deepEqual([read(''), read(','.repeat(100_000)).length], [[], 0])
  const elements = [
    ['for=192.0.2.60;proto=http;by=203.0.113.43', '192.0.2.60'],
    ['proto=http; FOR = 192.0.2.60 ;by=203.0.113.43', '192.0.2.60'],
    ['For="[2001:db8:cafe::17]:4711"', '2001:db8:cafe::17'],
    ['for="192.0.2.60:80"', '192.0.2.60'],
    ['for="_gazonk"', '_gazonk'],
    ['for=unknown', 'unknown'],
    ['by=192.0.2.60', 'unknown'],
    ['for', 'unknown'],
    ['for=', 'unknown'],
    ['for="', 'unknown'],
    ['for=""', 'unknown'],
    ['for=1.1.1.1;for=2.2.2.2', 'unknown'],
    // The client's text for the host is not a parameter of its own.
    ['host="a;for=6.6.6.6";for=192.0.2.60', '192.0.2.60'],
    ['for=192.0.2.60;host="a\\";for=6.6.6.6;x=\\\\"', '192.0.2.60'],
    ['for="192.0.2.60\\""', 'unknown']
  ]
  for (const [element, expected] of elements) assert.deepEqual(all(forwarded(element)), [expected], element)
  for (const line of ['for="6.6.6.6, for=192.0.2.1', 'for="6.6.6.6\\, for=192.0.2.1', 'for=6.6.6.6", for="192.0.2.1"']) {
    assert.equal(shown(forwarded(line)()), '192.0.2.1', line)
  }
  assert.deepEqual(all(forwarded('for=1.1.1.1, for=2.2.2.2;host="a,b\\""')), ['2.2.2.2', '1.1.1.1'])
})

test('nothing further left changes what the nearest proxy says', () => {
  const pieces = ['"', '\\', ';', ',', '=', 'for=', 'for="', '6.6.6.6', '[::1]:80', '_x', 'unknown', ' ', '\t', 'host=', 'é', '\x80']
  const random = randomOf(1)
  for (let turn = 0; turn < 5000; turn++) {
    const clients = Array.from({ length: random(12) }, () => pieces[random(pieces.length)]).join('')
    for (const [read, own] of [[xForwardedFor, '192.0.2.1'], [forwarded, 'by=_me;for="192.0.2.1:80"']]) {
      assert.equal(shown(read(`${clients}, ${own}`)()), '192.0.2.1', clients)
    }
  }
})

test('so many hops and no more are trusted', () => {
  const table = [
    ['10.0.0.1', 0, ['6.6.6.6'], '10.0.0.1'],
    ['10.0.0.1', 1, ['192.0.2.1'], '192.0.2.1'],
    ['10.0.0.1', 1, ['6.6.6.6, 192.0.2.1'], '192.0.2.1'],
    ['10.0.0.1', 1, ['6.6.6.6', '192.0.2.1'], '192.0.2.1'],
    ['10.0.0.1', 2, ['6.6.6.6, 192.0.2.1, 10.0.0.2'], '192.0.2.1'],
    ['10.0.0.1', 2, ['192.0.2.1:4711, [fd00::2]:80'], '192.0.2.1'],
    // The second proxy was bypassed.
    ['10.0.0.1', 2, ['192.0.2.1'], '10.0.0.1'],
    ['10.0.0.1', 2, [], '10.0.0.1'],
    // An invalid report stands for the proxy that wrote it.
    ['10.0.0.1', 1, ['192.0.2.1, garbage'], '10.0.0.1'],
    ['10.0.0.1', 2, ['garbage, 10.0.0.2'], '10.0.0.2'],
    ['10.0.0.1', 2, ['192.0.2.1, unknown'], '192.0.2.1'],
    ['::ffff:10.0.0.1', 1, [], '10.0.0.1'],
    ['10.0.0.1', 255, ['192.0.2.1'], '10.0.0.1'],
    // Without an address of the peer only hops say who it is.
    [undefined, 1, ['192.0.2.1'], '192.0.2.1'],
    [undefined, 2, ['192.0.2.1'], undefined],
    [undefined, 0, ['192.0.2.1'], undefined],
    [undefined, 1, ['garbage'], undefined],
    ['10.0.0.1', 2, ['_a, 10.0.0.2'], '_a@10.0.0.2']
  ]
  for (const [address, trust, lines, expected] of table) {
    assert.equal(client({ trust })(behind(address, lines)), expected, `${address} ${trust} ${lines}`)
  }
})

test('own networks are trusted and no others', () => {
  const source = client({ trust: ['10.0.0.0/8', 'fd00::/8'] })
  const table = [
    // A peer that is not a proxy may report anything.
    ['192.0.2.9', ['6.6.6.6'], '192.0.2.9'],
    ['192.0.2.9', ['6.6.6.6, 10.0.0.2'], '192.0.2.9'],
    ['10.0.0.1', ['6.6.6.6, 192.0.2.1'], '192.0.2.1'],
    ['10.0.0.1', ['6.6.6.6, 192.0.2.1, 10.0.0.3, fd00::2'], '192.0.2.1'],
    ['::ffff:10.0.0.1', ['192.0.2.1'], '192.0.2.1'],
    ['10.0.0.1', ['6.6.6.6, 192.0.2.1, ::ffff:10.0.0.3'], '192.0.2.1'],
    ['10.0.0.1', [], '10.0.0.1'],
    ['10.0.0.1', ['10.0.0.3, 10.0.0.2'], '10.0.0.3'],
    ['10.0.0.1', ['192.0.2.1, garbage, 10.0.0.2'], '10.0.0.2'],
    ['10.0.0.1', ['192.0.2.1, unknown'], '10.0.0.1'],
    ['fd00::1', ['2001:db8:1:2::7'], '2001:db8:1:2::/64'],
    ['10.0.0.1', ['_a'], '_a@10.0.0.1'],
    [undefined, ['192.0.2.1'], undefined]
  ]
  for (const [address, lines, expected] of table) assert.equal(source(behind(address, lines)), expected, `${address} ${lines}`)
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
  assert.deepEqual([peer()(request('::1')), peer()(request('fe80::1%eth0')), peer()(request(undefined))], ['::/64', 'fe80::/64', undefined])
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

test('golden lines of every dialect', (context) => {
  context.mock.timers.enable({ apis: ['Date'], now: 1_700_000_000_500 })
  const lines = (dialect, moreAfter = 29_001) => written({ quota: 100, window: '60s', dialects: [dialect] }, 50, moreAfter)
  assert.deepEqual(lines('current'), ['ratelimit-policy: "default";q=100;w=60', 'ratelimit: "default";r=50;t=30'])
  assert.deepEqual(lines('older'), ['ratelimit-limit: 100', 'ratelimit-remaining: 50', 'ratelimit-reset: 30'])
  assert.deepEqual(lines('legacy'), ['x-ratelimit-limit: 100', 'x-ratelimit-remaining: 50', 'x-ratelimit-reset: 30'])
  assert.deepEqual(lines('legacy-unix'), ['x-ratelimit-limit: 100', 'x-ratelimit-remaining: 50', 'x-ratelimit-reset: 1700000030'])
  assert.deepEqual(lines('current', null), ['ratelimit-policy: "default";q=100;w=60', 'ratelimit: "default";r=50'])
  assert.equal(written({ quota: 100, window: '60s', dialects: ['older'] }, 100, null)[2], 'ratelimit-reset: 0')
  const value = (options) => written(options, 0, null)[0]
  assert.equal(value({ name: 'daily', quota: 1000, window: '86400s' }), 'ratelimit-policy: "daily";q=1000;w=86400')
  assert.equal(value({ name: 'a b', quota: 0, window: 1500 }), 'ratelimit-policy: "a b";q=0;w=2')
  assert.equal(value({ name: 'q";q=9\\', quota: 1, window: '1ns' }), 'ratelimit-policy: "q\\";q=9\\\\";q=1;w=1')
  assert.equal(value({ name: 'tpm', quota: 90_000, window: '1min', unit: 'input-tokens' }), 'ratelimit-policy: "tpm";q=90000;w=60;qu="input-tokens"')
  assert.equal(value({ name: 'p', quota: 5, unit: 'concurrent-requests' }), 'ratelimit-policy: "p";q=5;qu="concurrent-requests"')
})

test('fields of an outer layer stay', () => {
  const outer = { RateLimit: '"a";r=1', 'RateLimit-Policy': '"a";q=2' }
  assert.deepEqual(written({ quota: 9, window: '1s' }, 7, 1, outer), ['ratelimit-policy: "a";q=2, "default";q=9;w=1', 'ratelimit: "a";r=1, "default";r=7;t=1'])
  const older = (there) => written({ quota: 9, window: '1s', dialects: ['older'] }, 7, 1, { 'RateLimit-Remaining': there }).find((line) => line.includes('remaining'))
  assert.deepEqual([older('7'), older('8'), older('none')], ['ratelimit-remaining: 7', 'ratelimit-remaining: 7', 'ratelimit-remaining: 7'])
  assert.equal(written({ quota: 9, window: '1s', dialects: ['older'] }, 7, 1, { 'RateLimit-Remaining': '3' }).length, 1)
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
    ['5/s', { headers: { dialects: ['newest'] } }, RangeError, /^dialects is/],
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
  assert.throws(() => peer({ groupV6: 129 }), RangeError)
  assert.throws(() => header(''), TypeError)
  const limit = rateLimit('5/s', { key: () => ({}), clock: new ManualClock() })
  assert.throws(() => limit(request('1.1.1.1'), {}, () => {}), /the key of a request is {}/)
  assert.equal(limit.counts.passed, 0)
})
