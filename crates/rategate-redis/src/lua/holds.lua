-- Permits that are held until they are released, or until the lease of their holder ends. The
-- state is a sorted set of "permits:id" by the end of the lease. Before them all comes the member
-- "", whose score is the number of permits held, negated. A reservation has the member
-- "permits:0:id", which no lease has: the ids of all have one length.

local holds = { numbers = { 'most', 'permits', 'lease_us' } }
kinds.c = holds

-- Members passed to one command.
local CHUNK_OF_MEMBERS = 1000

local function holds_permits(member)
  return tonumber(string.match(member, '^(%d+):')) or 0
end

function holds.read(key, op, now)
  local cell = { key = key, now = now, held = 0, over = {}, gone = {}, added = {}, lease_us = op.lease_us }
  if is_over(key) then
    cell.is_wiped = true
    return cell
  end
  local found = redis.call('ZRANGEBYSCORE', key, '-inf', string.format('%d', now), 'WITHSCORES')
  for at = 1, #found, 2 do
    if found[at] == '' then
      cell.held = cell.held - tonumber(found[at + 1])
    else
      cell.held = cell.held - holds_permits(found[at])
      cell.over[#cell.over + 1] = found[at]
    end
  end
  return cell
end

local function holds_member(op, id)
  return string.format('%d:', op.permits) .. id
end

-- Returns when what a member holds ends, or nil if it has ended.
function holds.end_of(cell, member)
  if cell.added[member] then return cell.added[member] end
  if cell.is_wiped or cell.gone[member] then return nil end
  local until_us = redis.call('ZSCORE', cell.key, member)
  return until_us and tonumber(until_us) > cell.now and tonumber(until_us) or nil
end

-- Returns true if this holder was granted before, which makes the call a repetition.
function holds.has(cell, op, _, id)
  return holds.end_of(cell, holds_member(op, id)) ~= nil
end

function holds.opening(cell, op, now)
  local excess = cell.held + op.permits - op.most
  if excess <= 0 then return now end
  local ends = {}
  if not cell.is_wiped then
    local found = redis.call('ZRANGEBYSCORE', cell.key, string.format('(%d', now), '+inf', 'WITHSCORES', 'LIMIT', '0', string.format('%d', excess))
    for at = 1, #found, 2 do ends[#ends + 1] = { tonumber(found[at + 1]), holds_permits(found[at]) } end
  end
  for member, until_us in pairs(cell.added) do ends[#ends + 1] = { until_us, holds_permits(member) } end
  table.sort(ends, function(a, b) return a[1] < b[1] end)
  for _, lease in ipairs(ends) do
    excess = excess - lease[2]
    if excess <= 0 then return lease[1] end
  end
  return false
end

function holds.room(cell, op)
  return cell.held + op.permits <= op.most and op.permits or 0
end

function holds.take(cell, op, now, permits, id)
  cell.added[holds_member(op, id)] = now + op.lease_us
  cell.held = cell.held + permits
end

-- Renews an existing lease for its full time from now.
function holds.renew(cell, op, now, id)
  local member = holds_member(op, id)
  if holds.has(cell, op, now, id) then cell.added[member] = now + op.lease_us end
end

local function holds_end(cell, member, permits)
  cell.added[member], cell.gone[member] = nil, true
  cell.held = cell.held - permits
end

function holds.release(cell, op, _, id)
  holds_end(cell, holds_member(op, id), op.permits)
end

-- Takes the permits of a reservation until its end, and gives them back.
function holds.hold(cell, member, permits, end_us)
  cell.added[member] = end_us
  cell.held = cell.held + permits
end

holds.unhold = holds_end

function holds.tell(cell, op, now)
  return now + op.lease_us, cell.held, 0
end

-- Permits held are released by id, never refunded, and their numbers are those of each call.
local function none() return 0 end

holds.back, holds.owed, holds.undo, holds.credit, holds.adopt, holds.debt = none, none, none, none, none, none

function holds.write(cell, now)
  if cell.is_wiped then redis.call('DEL', cell.key) end
  for member in pairs(cell.gone) do cell.over[#cell.over + 1] = member end
  for from = 1, #cell.over, CHUNK_OF_MEMBERS do
    redis.call('ZREM', cell.key, unpack(cell.over, from, math.min(#cell.over, from + CHUNK_OF_MEMBERS - 1)))
  end
  if cell.held <= 0 then return redis.call('DEL', cell.key) end
  for member, until_us in pairs(cell.added) do redis.call('ZADD', cell.key, string.format('%d', until_us), member) end
  redis.call('ZADD', cell.key, string.format('%d', -cell.held), '')
  local last = redis.call('ZREVRANGE', cell.key, '0', '0', 'WITHSCORES')
  keep_for(cell.key, ttl_ms(tonumber(last[2]), now))
end
