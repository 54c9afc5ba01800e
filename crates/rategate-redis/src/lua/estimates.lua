-- Estimates that are held until their cost is known. A state with any is one sorted set instead of
-- a string:
--
--   -2^53 + instant of writing   "held <count> <until> <mark> <leads><state>", in front of all
--   -2^52 + end of the hold      "<permits>:<ticket>:<id>", of each hold
--    2^51 + number               a gap of a bucket's leads, or a part of a log's ring
--
-- `until` is the latest end, in microseconds after the writing; the mark is that of the state, or
-- `-`. The write after the last end returns the state to its plain form.

local HEAD_FROM = -9007199254740992
local HOLDS_FROM = -4503599627370496
local PARTS_FROM = 2251799813685248

-- The maximum number of holds of one state: one call may have to end all of them.
local MOST_HELD_AT_ONCE = 1024

-- Returns the members of a range of scores, each with its score after it. The last number is how
-- many at most, after how many others.
local function members(key, from, to, count, skip)
  if not count then return redis.call('ZRANGEBYSCORE', key, from, to, 'WITHSCORES') end
  return redis.call('ZRANGEBYSCORE', key, from, to, 'WITHSCORES', 'LIMIT', skip or 0, count)
end

-- Reads the state of a key that is no string, from its first two members: its text, mark, the
-- member that has it, and its holds.
local function parse_marked(found)
  local first = found[1] or ''
  local count, until_us, mark, rest = string.match(first, '^held (%d+) (%d+) (%S+) (.*)$')
  if count then
    local at_us = tonumber(found[2]) - HEAD_FROM
    local next_us = found[4] and tonumber(found[4]) - HOLDS_FROM or 0
    return rest, tonumber(mark), first, {
      count = tonumber(count), at_us = at_us, until_us = at_us + tonumber(until_us), next_us = next_us,
      first = found[3], is_stored = true, added = {}, gone = {}, drops = {},
    }
  end
  -- A debt with a mark is the only member of a set, and its score is the mark.
  local marked = string.match(first, '^debt (.*)$')
  if not marked then error('WRONGTYPE the key holds a set of another program') end
  return marked, tonumber(found[2]), first
end

-- Reads the text of a state, its mark, what a marked state replaces (a member, or `true` for a key
-- of another type), and its holds.
local function read_state(key, call)
  if call.expects_holds then
    local found = redis.pcall('ZRANGEBYSCORE', key, '-inf', '+inf', 'WITHSCORES', 'LIMIT', '0', '2')
    if found[1] then return parse_marked(found) end
  end
  local text = redis.pcall('GET', key)
  if type(text) ~= 'table' then return text, nil, text and true end
  return parse_marked(members(key, '-inf', '+inf', 2))
end

local function new_holds()
  return { count = 0, until_us = 0, next_us = 0, added = {}, gone = {}, drops = {} }
end

-- Returns the holds that end until an instant, as pairs of end and member, in order; the first so
-- many of them, where none is held by this call.
local function holds_until(cell, until_us, count)
  local open, list = cell.open, {}
  if open.is_stored then
    local found = members(cell.key, HOLDS_FROM + 1, math.min(HOLDS_FROM + until_us, PARTS_FROM - 1), not next(open.added) and count)
    for at = 1, #found, 2 do
      local member = found[at]
      if not open.gone[member] and not open.added[member] then
        list[#list + 1] = { tonumber(found[at + 1]) - HOLDS_FROM, member }
      end
    end
  end
  local stored = #list
  for member, end_us in pairs(open.added) do
    if end_us <= until_us then list[#list + 1] = { end_us, member } end
  end
  if #list > stored then table.sort(list, function(a, b) return a[1] < b[1] end) end
  return list
end

-- Returns when a hold ends, or nil if it has ended.
local function end_of(cell, member)
  if cell.kind.end_of then return cell.kind.end_of(cell, member) end
  local open = cell.open
  if not open or open.gone[member] then return nil end
  local end_us = open.added[member] or member == open.first and open.next_us
  if end_us or not open.is_stored then return end_us end
  local score = redis.call('ZSCORE', cell.key, member)
  return score and tonumber(score) - HOLDS_FROM
end

local function add_hold(cell, member, end_us)
  local open = cell.open
  open.added[member], open.gone[member] = end_us, nil
  open.count = open.count + 1
  open.next_us = open.count == 1 and end_us or math.min(open.next_us, end_us)
  open.until_us = math.max(open.until_us, end_us)
end

-- Ends a hold of which `unused` permits come back at an instant. Returns how many did.
local function end_hold(cell, op, member, unused, now)
  local open = cell.open
  local permits, ticket = string.match(member, '^(%d+):(%d+):')
  open.added[member], open.gone[member] = nil, true
  open.count = open.count - 1
  -- The next one is not known.
  open.next_us, open.first = 0, nil
  return op.kind.give_back(cell, op, now, tonumber(ticket), unused or tonumber(permits), not unused)
end

-- From so many holds on, a call that ends them reads all that it may need at once.
local FEW_HOLDS = 8

-- Ends all holds whose time is over, each at its own instant.
local function end_due(cell, op, now)
  local open = cell.open
  if not open or open.count == 0 or open.next_us > now then return end
  local due = holds_until(cell, now)
  if #due > FEW_HOLDS and op.kind.prepare then op.kind.prepare(cell) end
  for _, hold in ipairs(due) do
    if op.kind.pass then op.kind.pass(cell, op, hold[1]) end
    end_hold(cell, op, hold[2], nil, hold[1])
    cell.is_dirty = true
  end
  if #due > FEW_HOLDS and op.kind.complete then op.kind.complete(cell, op) end
end

-- Moves all ends back with a clock that is behind the writing by more than the horizon.
local function follow_clock(cell, now, call)
  local open = cell.open
  if not open or open.at_us <= now + call.horizon_us then return 0 end
  local back_us = open.at_us - now
  for _, hold in ipairs(holds_until(cell, LAST_US * 2)) do open.added[hold[2]] = math.max(0, hold[1] - back_us) end
  open.until_us, open.next_us, open.at_us = math.max(now, open.until_us - back_us), 0, now
  corrected(cell, call)
  return back_us
end

-- Returns the end of the hold that ends first.
local function next_end(cell)
  local open = cell.open
  if open.next_us == 0 then open.next_us = holds_until(cell, 2 * LAST_US - 1, not next(open.gone) and 1)[1][1] end
  return open.next_us
end

-- Returns the instant at which a call that is denied may pass: the first at which it does, or else
-- the first end of a hold, if that is sooner; false: never.
local function opening_or_end(cell, op, now)
  local opens_us, open = op.kind.opening(cell, op, now), cell.open
  if not open or open.count == 0 or opens_us and opens_us <= now then return opens_us end
  if opens_us and opens_us <= next_end(cell) then return opens_us end
  cell.borders = 0
  return next_end(cell)
end

-- Returns the wait of a denied call: the microseconds until that instant; or -2, less those until a
-- hold ends, where the caller knows whether that comes before as many borders as it is told (what
-- other limits of the call take is left out then, so it may be told again); or -1 if time alone
-- cannot help.
local function wait_until(opens_us, cells, now)
  if not opens_us then return -1 end
  for _, cell in ipairs(cells) do
    if (cell.borders or 0) > 1 and cell.open and cell.open.count > 0 then
      if next_end(cell) > opens_us then return -2 - (next_end(cell) - now) end
      cell.borders = 0
    end
  end
  return opens_us - now
end

-- Adds members to a set, or removes them, many at once. Scores are whole numbers below 2^53, which
-- are passed on exactly.
local function in_chunks(verb, key, words)
  for from = 1, #words, 1000 do
    redis.call(verb, key, unpack(words, from, math.min(#words, from + 999)))
  end
end

-- Writes a state with holds. It stays in place while it is replaced: in a cluster, a key that is
-- missing cannot be written while its slot is moving. `adds` has scores and members of parts.
local function keep_held(cell, text, mark, until_us, now, adds)
  local open = cell.open
  local head = string.format(mark and 'held %d %d %d ' or 'held %d %d - ', open.count, math.max(0, open.until_us - now), mark) .. text
  adds[#adds + 1], adds[#adds + 2] = HEAD_FROM + now, head
  for member, end_us in pairs(open.added) do
    adds[#adds + 1], adds[#adds + 2] = HOLDS_FROM + end_us, member
  end
  local drops = open.drops
  if cell.replaces == true then redis.call('DEL', cell.key) end
  in_chunks('ZADD', cell.key, adds)
  if open.is_stored then
    for member in pairs(open.gone) do drops[#drops + 1] = member end
  end
  if cell.replaces and cell.replaces ~= true and cell.replaces ~= head then drops[#drops + 1] = cell.replaces end
  in_chunks('ZREM', cell.key, drops)
  keep_for(cell.key, ttl_ms(math.max(until_us, open.until_us), now))
end

-- Writes the text of a state without holds. A marked one stays in place while it is replaced.
local function keep_state(cell, text, mark, ttl)
  if not mark then return keep_string(cell.key, text, ttl) end
  local member = 'debt ' .. text
  if cell.replaces == true then redis.call('DEL', cell.key) end
  if cell.open and cell.open.is_stored then
    redis.call('ZREMRANGEBYSCORE', cell.key, HOLDS_FROM + 1, '+inf')
  end
  redis.call('ZADD', cell.key, string.format('%d', mark), member)
  if cell.replaces and cell.replaces ~= true and cell.replaces ~= member then
    redis.call('ZREM', cell.key, cell.replaces)
  end
  keep_for(cell.key, ttl)
end

-- Returns true if a cell that is about to become a set has to remove its key while the slot is
-- moving.
local function loses_key(cell)
  local is_set = cell.mark or cell.open and cell.open.count > 0
  if not cell.is_dirty or not is_set or cell.replaces ~= true then return false end
  return type(redis.pcall('GET', cell.key .. '?')) == 'table'
end
