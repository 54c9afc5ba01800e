-- The operations of a call. Its arguments begin with the store's marker and its expected value
-- (both empty: not checked), the horizon, and the limits the call refers to:
--
--   marker  known  horizon_us  how many  (letter  numbers...)...
--
-- The rest refers to limits by their number. The keys come in the order in which they are needed.
-- Decisions are made on cells, and cells are written at the end, so a call that fails has changed
-- nothing.

local function begin(args, at, now)
  if not now then now, at = clock(args, at) end
  if not now or now < 0 or now > LAST_US then error('RATEGATE the clock is out of range') end
  local call = { now = now, horizon_us = tonumber(args[at + 2]), ops = {}, cells = {}, order = {}, records = {}, corrected = 0 }
  call.is_doubted = is_doubted(args[at], args[at + 1])
  local count = tonumber(args[at + 3])
  at = at + 4
  for index = 1, count do
    local letter = args[at]
    local kind = kinds[letter]
    local op = { kind = kind }
    for place, name in ipairs(kind.numbers) do op[name] = tonumber(args[at + place]) end
    if kind.place then kind.place(op, now) end
    call.ops[index] = op
    at = at + 1 + #kind.numbers
  end
  return call, at
end

-- The state of a key that holds data of another kind: nothing is decided on it, or written to it.
local FOREIGN = { is_foreign = true }

local function read_cell(call, key, op)
  local is_read, cell = pcall(op.kind.read, key, op, call.now, call)
  if is_read then return cell end
  local line = type(cell) == 'table' and cell.err or tostring(cell)
  if not string.find(line, 'WRONGTYPE', 1, true) then error(cell) end
  return FOREIGN
end

local function cell_of(call, key, op)
  local cell = call.cells[key]
  if not cell then
    cell = read_cell(call, key, op)
    call.cells[key] = cell
    if cell == FOREIGN then return cell end
    cell.key, cell.kind = key, op.kind
    call.order[#call.order + 1] = cell
  elseif cell == FOREIGN then
    return cell
  elseif cell.kind ~= op.kind then
    error('RATEGATE two kinds of limit under one key')
  else
    op.kind.adopt(cell, op, call.now, call)
  end
  return cell
end

local function finish(call)
  for _, cell in ipairs(call.order) do
    if cell.is_dirty then cell.kind.write(cell, call.now) end
  end
  for key, record in pairs(call.records) do
    keep_string(key, table.concat(record.numbers, ' '), record.keep_ms)
  end
end

-- Returns the same limit for a request of one permit.
local function for_one(op)
  if not op.one then
    op.one = { permits = 1, cost_us = op.unit_us, cost_part = op.unit_part }
    for name, value in pairs(op) do
      if op.one[name] == nil and name ~= 'one' then op.one[name] = value end
    end
  end
  return op.one
end

-- Returns the first instant at which all limits grant; false: never.
local function opening_of(ops, cells, now, is_partial)
  local opens_us = now
  for index, op in ipairs(ops) do
    if is_partial then op = for_one(op) end
    local opening = opening_or_end(cells[index], op, now)
    if not opening then return false end
    opens_us = math.max(opens_us, opening)
  end
  return opens_us
end

-- Adds the reply to a decision on a key that holds data of another kind.
local function foreign(ops, reply)
  reply[#reply + 1], reply[#reply + 2] = 3, 0
  for _ = 1, 3 * #ops do reply[#reply + 1] = 0 end
  return false
end

-- Makes one decision about one or many limits of a key: all of them grant, or nothing is taken.
-- The reply is 1 and the number of permits, or 0 and the wait (see `wait_until`). 2 is a repeated 1,
-- and renews what is held. 3 is a key that holds data of another kind, and nothing was taken. Three
-- numbers for each limit follow. Returns true if permits were taken.
local function decide_one(call, ops, keys, key_at, ids, is_partial, reply)
  local now, permits, is_repeated = call.now, ops[1].permits, false
  local cells = {}
  for index, op in ipairs(ops) do
    local cell = cell_of(call, keys[key_at + index - 1], op)
    if cell == FOREIGN then return foreign(ops, reply) end
    cells[index] = cell
    if op.kind.has and op.kind.has(cell, op, now, ids[index]) then is_repeated = true end
    if is_partial then permits = math.min(permits, op.kind.room(cell, op, now)) end
  end
  -- Where fewer permits are accepted, one has to pass.
  local opens_us = opening_of(ops, cells, now, is_partial)
  local is_granted = opens_us == now
  if is_repeated then
    for index, op in ipairs(ops) do
      if call.writes and op.kind.has then
        op.kind.renew(cells[index], op, now, ids[index])
        cells[index].is_dirty = true
      end
    end
    reply[#reply + 1], reply[#reply + 2] = 2, permits
  elseif is_granted then
    for index, op in ipairs(ops) do
      if call.writes then
        op.kind.take(cells[index], op, now, permits, ids[index])
        cells[index].is_dirty = true
      end
    end
    reply[#reply + 1], reply[#reply + 2] = 1, permits
  else
    reply[#reply + 1], reply[#reply + 2] = 0, wait_until(opens_us, cells, now)
  end
  for index, op in ipairs(ops) do
    local a, b, c = op.kind.tell(cells[index], op, now)
    local at = #reply
    reply[at + 1], reply[at + 2], reply[at + 3] = a, b, c
  end
  return is_granted and not is_repeated and call.writes
end

-- Returns the reply to an earlier sending of the same request, if it is still recorded.
local function remembered(call, key)
  local record = call.records[key]
  if record then return record.numbers end
  local text = redis.call('GET', key)
  if not text or is_over(key) then return nil end
  local numbers = {}
  for number in string.gmatch(text, '%-?%d+') do numbers[#numbers + 1] = tonumber(number) end
  return numbers
end

local function decide_once(call, ops, keys, key_at, ids, is_partial, keep_ms, reply)
  local before = remembered(call, keys[key_at])
  if before then
    for place, number in ipairs(before) do reply[#reply + 1] = place == 1 and 2 or tonumber(number) end
    return
  end
  local from = #reply + 1
  if decide_one(call, ops, keys, key_at + 1, ids, is_partial, reply) then
    local numbers = {}
    for at = from, #reply do numbers[#numbers + 1] = string.format('%d', reply[at]) end
    call.records[keys[key_at]] = { numbers = numbers, keep_ms = keep_ms }
  end
end

-- Decides groups of decisions that differ in their keys only, or not at all. Arguments of each
-- group:
--
--   how often  modes  keep_ms  limits  (number of each)...
--   (id of each that holds)... for each decision
--
-- Modes are letters: s the same keys each time, o once (a key of the record comes first), p as
-- many permits as pass, - none of these.
local function decide(keys, args, at, writes)
  local now
  now, at = clock(args, at)
  local alone = gcra_alone(keys, args, at, now, writes)
  if alone then return alone end
  local call
  call, at = begin(args, at, now)
  call.writes = writes
  local reply, key_at, count = { 1, call.now, 0 }, 1, #args
  while at <= count do
    local often, modes, keep_ms, limits = tonumber(args[at]), args[at + 1], tonumber(args[at + 2]), tonumber(args[at + 3])
    local is_same, is_once, is_partial = false, false, false
    if modes ~= '-' then
      is_same, is_once, is_partial = string.find(modes, 's'), string.find(modes, 'o'), string.find(modes, 'p')
    end
    local ops, holders, ids = {}, {}, {}
    for index = 1, limits do
      ops[index] = call.ops[tonumber(args[at + 3 + index])]
      if ops[index].kind.has then holders[#holders + 1] = index end
    end
    at = at + 4 + limits
    for turn = 1, often do
      for _, index in ipairs(holders) do
        ids[index], at = args[at], at + 1
      end
      if is_once then
        decide_once(call, ops, keys, key_at, ids, is_partial, keep_ms, reply)
        key_at = key_at + limits + 1
      else
        decide_one(call, ops, keys, key_at, ids, is_partial, reply)
        if not is_same or turn == often then key_at = key_at + limits end
      end
    end
  end
  reply[3] = call.corrected
  -- A negative number is the complement of the count: the store has lost its marker, and so may
  -- have lost any state.
  if call.is_doubted then reply[3] = -1 - call.corrected end
  if writes then finish(call) end
  return reply
end

local verbs = {}

function verbs.decide(keys, args, at) return decide(keys, args, at or 1, true) end

function verbs.peek(keys, args, at) return decide(keys, args, at or 1, false) end

-- Refunds permits. Arguments for each grant:  limits  (number of the limit, its three numbers)...
-- All limits take back the minimum of what each of them can.
function verbs.refund(keys, args, at)
  local call
  call, at = begin(args, at or 1)
  local reply, key_at, count = { 1, call.now, 0 }, 1, #args
  while at <= count do
    local limits, least, parts = tonumber(args[at]), nil, {}
    at = at + 1
    for index = 1, limits do
      local op = call.ops[tonumber(args[at])]
      local cell = cell_of(call, keys[key_at], op)
      local a, b, c = tonumber(args[at + 1]), tonumber(args[at + 2]), tonumber(args[at + 3])
      local back = cell == FOREIGN and 0 or op.kind.back(cell, op, call.now, a, b, c)
      least = math.min(least or back, back)
      parts[index] = { op, cell, a }
      at, key_at = at + 4, key_at + 1
    end
    for _, part in ipairs(parts) do
      if least > 0 then
        part[1].kind.undo(part[2], part[1], call.now, least, part[3])
        part[2].is_dirty = true
      end
    end
    reply[#reply + 1] = least
  end
  reply[3] = call.corrected
  finish(call)
  return reply
end

-- Calls `change` for each lease that exists. Arguments of each:  (number of the limit, id)...
local function with_holders(keys, args, at, change)
  local call
  call, at = begin(args, at)
  local reply, key_at, count = { 1, call.now, 0 }, 1, #args
  while at <= count do
    local op = call.ops[tonumber(args[at])]
    local cell = cell_of(call, keys[key_at], op)
    local done = 0
    if cell ~= FOREIGN and holds.has(cell, op, call.now, args[at + 1]) then
      change(cell, op, call.now, args[at + 1])
      cell.is_dirty, done = true, 1
    end
    reply[#reply + 1] = done
    at, key_at = at + 2, key_at + 1
  end
  finish(call)
  return reply
end

function verbs.release(keys, args, at)
  return with_holders(keys, args, at or 1, holds.release)
end

function verbs.renew(keys, args, at)
  return with_holders(keys, args, at or 1, holds.renew)
end

-- Resets all of these keys to fresh.
function verbs.reset(keys, args, at)
  local now, gone = clock(args, at or 1), 0
  for _, key in ipairs(keys) do
    local there = is_over(key) and 0 or 1
    gone = gone + math.min(there, redis.call('DEL', key))
  end
  return { 1, now, 0, gone }
end
