-- The sliding log: a ring of entries in one string, changed in place.
--
--   header   form, widths of a gap and of a count, capacity; the slot of the oldest entry, the
--            number of entries; the points of the oldest and the newest, all permits, the grid
--   entries  the gap: how many points after the entry before; the count of permits
--
-- A grant counts as made at the next point of the grid, which by default is every microsecond. A
-- decision reads and writes one entry, however long the log.
--
-- With holds the header is the text of the state, and chunks of the entries are parts of its set:
-- "<number>:<entries>".
--
-- A log in debt has wider counts, and as many entries as it needs. Functions of earlier releases
-- that rewrite it keep the newest permits, which alone decide.

local HEADER = '<BBBI4I4I4I7I7I7I7'
local HEADER_BYTES = 43
local FORM = 1
local MOST_ENTRIES = 65536
-- The bytes of a count, and the maximum number of permits, in a log that charges have exceeded.
local WIDE_COUNT_BYTES = 4
local MOST_HELD = 4294967295
-- The number of entries fetched at once.
local CHUNK = 32

local log = { numbers = { 'held_us', 'grid_us', 'most', 'permits', 'gap_bytes', 'count_bytes', 'capacity' } }
kinds.l = log

-- Returns a chunk of the entries, as it was read.
local function log_chunk(cell, chunk)
  local text = cell.chunks[chunk]
  if not text then
    if cell.open and cell.open.is_stored then
      local score = PARTS_FROM + chunk
      local found = members(cell.key, score, score)[1] or ':'
      cell.stored[chunk], text = found, string.sub(found, string.find(found, ':', 1, true) + 1)
    else
      local from = HEADER_BYTES + chunk * CHUNK * cell.entry_bytes
      text = redis.call('GETRANGE', cell.key, string.format('%d', from), string.format('%d', from + CHUNK * cell.entry_bytes - 1))
    end
    cell.chunks[chunk] = text
  end
  return text
end

-- Returns the gap and the count of the entry in a slot of the ring.
local function log_entry(cell, place)
  local bytes = cell.put[place]
  if not bytes then
    local chunk = math.floor(place / CHUNK)
    local text = log_chunk(cell, chunk)
    local at = (place - chunk * CHUNK) * cell.entry_bytes
    bytes = string.sub(text, at + 1, at + cell.entry_bytes)
    if #bytes < cell.entry_bytes then return 0, 0 end
  end
  return struct.unpack(cell.entry, bytes)
end

local function log_place(cell, index)
  local place = cell.head + index
  if place >= cell.capacity then return place - cell.capacity end
  return place
end

local function log_shape(cell, gap_bytes, count_bytes, capacity, grid_us)
  cell.gap_bytes, cell.count_bytes, cell.capacity, cell.grid_us = gap_bytes, count_bytes, capacity, grid_us
  cell.entry = '<I' .. gap_bytes .. 'I' .. count_bytes
  cell.entry_bytes = gap_bytes + count_bytes
end

-- Returns a shape for more permits than the limit allows, with capacity for so many entries.
local function log_wide(op, entries)
  return {
    gap_bytes = op.gap_bytes, count_bytes = WIDE_COUNT_BYTES, grid_us = op.grid_us, most = MOST_HELD,
    capacity = math.min(math.max(op.capacity, entries), MOST_ENTRIES),
  }
end

-- Empties the cell, and marks everything in the store as obsolete.
local function log_clear(cell, op)
  log_shape(cell, op.gap_bytes, op.count_bytes, op.capacity, op.grid_us)
  cell.head, cell.length, cell.total, cell.oldest, cell.newest = 0, 0, 0, 0, 0
  cell.put, cell.chunks, cell.is_whole = {}, {}, true
end

local log_rewrite

-- Makes capacity for one more entry of a log in debt. The oldest of the maximum number of entries
-- counts with the next: both are older than the newest permits, which alone decide.
local function log_grow(cell)
  if cell.capacity < MOST_ENTRIES then
    return log_rewrite(cell, log_wide(cell, cell.capacity * 2), function(_, count) return count end)
  end
  local _, dropped = log_entry(cell, cell.head)
  cell.head, cell.length = log_place(cell, 1), cell.length - 1
  local gap, count = log_entry(cell, cell.head)
  cell.oldest = cell.oldest + gap
  cell.put[cell.head] = struct.pack(cell.entry, gap, dropped + count)
end

local function log_append(cell, point, permits)
  local last = cell.length - 1
  if last >= 0 and cell.newest >= point then
    local place = log_place(cell, last)
    local gap, count = log_entry(cell, place)
    cell.put[place] = struct.pack(cell.entry, gap, count + permits)
  else
    if cell.length >= cell.capacity then log_grow(cell) end
    local gap = 0
    if cell.length > 0 then gap = point - cell.newest else cell.oldest = point end
    cell.put[log_place(cell, cell.length)] = struct.pack(cell.entry, gap, permits)
    cell.length, cell.newest = cell.length + 1, point
  end
  cell.total = cell.total + permits
end

-- Calls see(point, permits, index) for each entry from the oldest on, until it returns true.
local function log_walk(cell, see)
  local point = cell.oldest
  for index = 0, cell.length - 1 do
    local gap, count = log_entry(cell, log_place(cell, index))
    if index > 0 then point = point + gap end
    if see(point, count, index) then return end
  end
end

-- Writes the log anew, in the shape of `op`. A capacity below the number of entries means fewer
-- permits, too: the dropped entries are older than the newest `most` permits, and decide nothing.
function log_rewrite(cell, op, keep)
  local entries, grid_us = {}, cell.grid_us
  log_walk(cell, function(point, count)
    count = keep(point, count)
    if count > 0 then entries[#entries + 1] = { point, count } end
  end)
  log_clear(cell, op)
  for index = math.max(1, #entries - op.capacity + 1), #entries do
    local point, count = entries[index][1], entries[index][2]
    if grid_us ~= op.grid_us then point = steps_up(point * grid_us, op.grid_us) end
    log_append(cell, point, math.min(count, op.most))
  end
end

local function log_forget(cell, op, now)
  if cell.length > 0 and cell.newest * cell.grid_us + op.held_us <= now then return log_clear(cell, op) end
  while cell.length > 0 and cell.oldest * cell.grid_us + op.held_us <= now do
    local _, count = log_entry(cell, cell.head)
    cell.total, cell.length = cell.total - count, cell.length - 1
    cell.head = log_place(cell, 1)
    if cell.length > 0 then cell.oldest = cell.oldest + log_entry(cell, cell.head) end
  end
end

local function log_parse(cell, text)
  if #text < HEADER_BYTES then return false end
  local form, gap_bytes, count_bytes, capacity, head, length, oldest, newest, total, grid_us = struct.unpack(HEADER, text)
  if form ~= FORM or gap_bytes < 1 or gap_bytes > 7 or count_bytes < 1 or count_bytes > 4 then return false end
  if capacity > MOST_ENTRIES or length > capacity or head >= capacity or newest < oldest or grid_us < 1 then return false end
  if newest * grid_us > 2 * LAST_US then return false end
  log_shape(cell, gap_bytes, count_bytes, capacity, grid_us)
  cell.head, cell.length, cell.total, cell.oldest, cell.newest = head, length, total, oldest, newest
  cell.put, cell.chunks = {}, {}
  return true
end

-- Returns the clock of this log, which is never before its newest grant.
local function log_now(cell, now)
  if cell.length == 0 then return now end
  return math.max(now, (cell.newest - 1) * cell.grid_us + 1)
end

function log.read(key, op, now, call)
  local cell = { key = key, held_us = op.held_us, stored = {} }
  -- Reads the first entries, too; a short log is read whole.
  local until_byte = HEADER_BYTES + CHUNK * (op.gap_bytes + op.count_bytes)
  local text = redis.pcall('GETRANGE', key, '0', string.format('%d', until_byte - 1))
  if type(text) == 'table' then
    local unmarked
    text, unmarked, cell.replaces, cell.open = parse_marked(members(key, '-inf', '+inf', 2))
  elseif text ~= '' then
    cell.replaces = true
  end
  if text == '' or is_over(key) then
    cell.open, cell.replaces = nil, text ~= ''
    log_clear(cell, op)
    return cell
  end
  local is_parsed = log_parse(cell, text)
  if is_parsed then follow_clock(cell, now, call) else cell.open = nil end
  if not is_parsed or cell.newest * cell.grid_us > now + op.grid_us + call.horizon_us then
    local total = cell.grid_us and cell.total or 0
    log_clear(cell, total > op.most and log_wide(op, 1) or op)
    log_append(cell, steps_up(now, op.grid_us), math.min(math.max(op.most, total), MOST_HELD))
    if not cell.is_dirty then corrected(cell, call) end
    end_due(cell, op, now)
    return cell
  end
  if not cell.open and cell.entry_bytes == op.gap_bytes + op.count_bytes then cell.chunks[0] = string.sub(text, HEADER_BYTES + 1) end
  log_forget(cell, op, log_now(cell, now))
  end_due(cell, op, now)
  log.adopt(cell, op)
  return cell
end

local function log_all(_, count) return count end

-- A log that holds more than the limit allows keeps all of it.
function log.adopt(cell, op)
  cell.held_us = math.max(cell.held_us, op.held_us)
  if cell.gap_bytes < op.gap_bytes or cell.count_bytes < op.count_bytes or cell.capacity < op.capacity
    or cell.grid_us ~= op.grid_us then
    log_rewrite(cell, cell.total > op.most and log_wide(op, cell.length) or op, log_all)
  end
end

-- Returns a log that was wider to the shape of its limit, once it holds no more than that.
local function log_narrow(cell, op)
  if cell.gap_bytes ~= op.gap_bytes or cell.count_bytes ~= op.count_bytes or cell.capacity ~= op.capacity then
    log_rewrite(cell, op, log_all)
  end
end

function log.opening(cell, op, now)
  local excess = cell.total + op.permits - op.most
  if excess <= 0 then return now end
  local opens_us = now
  log_walk(cell, function(point, count)
    excess = excess - count
    opens_us = math.max(now, point * cell.grid_us + op.held_us)
    return excess <= 0
  end)
  return opens_us
end

function log.room(cell, op)
  return math.max(0, math.min(op.permits, op.most - cell.total))
end

function log.take(cell, op, now, permits)
  log_narrow(cell, op)
  log_append(cell, steps_up(log_now(cell, now), op.grid_us), permits)
end

-- Counts at most up to `bound` permits in the log.
function log.charge(cell, op, now, permits, bound)
  local booked = math.min(permits, math.max(0, bound - cell.total))
  if booked == 0 then return 0 end
  local point = steps_up(log_now(cell, now), op.grid_us)
  if cell.total + booked > op.most and cell.count_bytes < WIDE_COUNT_BYTES then
    log_rewrite(cell, log_wide(op, cell.length + 1), log_all)
  end
  log_append(cell, point, booked)
  return booked
end

function log.tell(cell)
  return cell.newest, cell.total, 0
end

function log.back(cell, op, _, newest)
  local found = 0
  log_walk(cell, function(point, count)
    if point == newest then found = math.min(op.permits, count) end
    return point >= newest
  end)
  return found
end

-- The permits are mostly of the newest entry, which may hold those of other grants too; an empty
-- entry is removed.
function log.undo(cell, op, _, permits, newest)
  local last = log_place(cell, cell.length - 1)
  local gap, count = log_entry(cell, last)
  if newest == cell.newest and count > permits then
    cell.put[last] = struct.pack(cell.entry, gap, count - permits)
    cell.total = cell.total - permits
  else
    log_rewrite(cell, cell.total > op.most and log_wide(op, cell.length) or op, function(point, held)
      if point == newest then return held - permits end
      return held
    end)
  end
end

function log.owed(cell, op)
  return math.min(op.permits, cell.total)
end

-- The newest entries go first: every window that ends after them holds this instant too.
function log.credit(cell, op, _, permits)
  if permits >= cell.total then return log_clear(cell, op) end
  while permits > 0 do
    local last = log_place(cell, cell.length - 1)
    local gap, count = log_entry(cell, last)
    local back = math.min(count, permits)
    cell.total, permits = cell.total - back, permits - back
    if back < count then
      cell.put[last] = struct.pack(cell.entry, gap, count - back)
    else
      cell.length, cell.newest = cell.length - 1, cell.newest - gap
    end
  end
end

function log.ticket(cell)
  return cell.newest * cell.grid_us
end

-- Finds the entries of all points.
function log.prepare(cell)
  local indices = {}
  log_walk(cell, function(point, _, index) indices[point] = index end)
  cell.indices = indices
end

-- Removes the entries that have become empty.
function log.complete(cell, op)
  cell.indices = nil
  log_rewrite(cell, cell.total > op.most and log_wide(op, cell.length) or op, function(_, count) return count end)
end

-- Takes back permits of the entry of a hold, which is among the newest as a rule. An entry that
-- becomes empty is removed.
function log.give_back(cell, op, _, counted_us, permits)
  local target, point = steps_up(counted_us, cell.grid_us), cell.newest
  if cell.indices then
    local index = cell.indices[target]
    if not index then return 0 end
    local place = log_place(cell, index)
    local gap, count = log_entry(cell, place)
    local back = math.min(permits, count)
    -- An empty entry stays until all holds have ended.
    cell.put[place] = struct.pack(cell.entry, gap, count - back)
    cell.total = cell.total - back
    return back
  end
  for index = cell.length - 1, 0, -1 do
    local place = log_place(cell, index)
    local gap, count = log_entry(cell, place)
    if point == target then
      local back = math.min(permits, count)
      if back < count then
        cell.put[place] = struct.pack(cell.entry, gap, count - back)
        cell.total = cell.total - back
      elseif cell.length == 1 then
        log_clear(cell, op)
      elseif index == cell.length - 1 then
        cell.length, cell.newest, cell.total = index, point - gap, cell.total - back
      else
        log.undo(cell, op, nil, back, target)
      end
      return back
    end
    if point < target then return 0 end
    point = point - gap
  end
  return 0
end

function log.debt(cell, op)
  return math.max(0, cell.total - op.most)
end

local function log_header(cell)
  return struct.pack(HEADER, FORM, cell.gap_bytes, cell.count_bytes, cell.capacity, cell.head, cell.length,
    cell.oldest, cell.newest, cell.total, cell.grid_us)
end

-- Returns the texts of all chunks that hold entries of the ring.
local function log_chunks(cell)
  local texts, last = {}, -1
  for index = 0, cell.length - 1 do last = math.max(last, log_place(cell, index)) end
  for chunk = 0, math.floor(last / CHUNK) do
    local entries = {}
    for at = 0, CHUNK - 1 do
      local place = chunk * CHUNK + at
      local bytes = cell.put[place]
      if not bytes then
        local gap, count = 0, 0
        if place < cell.capacity and not cell.is_whole then gap, count = log_entry(cell, place) end
        bytes = struct.pack(cell.entry, gap, count)
      end
      entries[at + 1] = bytes
    end
    texts[chunk] = table.concat(entries)
  end
  return texts
end

-- Adds the chunks that have changed to what is written, and those before to what is removed.
local function log_write_parts(cell, adds)
  local open = cell.open
  local texts = {}
  if cell.is_whole or not open.is_stored then
    texts = log_chunks(cell)
    if open.is_stored then redis.call('ZREMRANGEBYSCORE', cell.key, PARTS_FROM, '+inf') end
  else
    for place, bytes in pairs(cell.put) do
      local chunk = math.floor(place / CHUNK)
      local at = (place - chunk * CHUNK) * cell.entry_bytes
      local text = texts[chunk] or log_chunk(cell, chunk)
      if #text < at then text = text .. string.rep('\0', at - #text) end
      texts[chunk] = string.sub(text, 1, at) .. bytes .. string.sub(text, at + cell.entry_bytes + 1)
    end
  end
  for chunk, text in pairs(texts) do
    local member, before = string.format('%d:', chunk) .. text, cell.stored[chunk]
    adds[#adds + 1], adds[#adds + 2] = PARTS_FROM + chunk, member
    if before and before ~= member and not cell.is_whole then open.drops[#open.drops + 1] = before end
  end
end

function log.write(cell, now)
  local open, until_us = cell.open, cell.newest * cell.grid_us + cell.held_us
  if open and open.count > 0 then
    local adds = {}
    log_write_parts(cell, adds)
    return keep_held(cell, log_header(cell), nil, cell.length > 0 and until_us or now, now, adds)
  end
  if cell.length == 0 then return redis.call('DEL', cell.key) end
  local ttl = ttl_ms(until_us, now)
  if cell.is_whole or open and open.is_stored then
    local parts = {}
    for index = 0, cell.length - 1 do
      local place = log_place(cell, index)
      parts[index + 2] = cell.put[place] or struct.pack(cell.entry, log_entry(cell, place))
    end
    -- The head may not be the first slot, if entries of the same call were added and removed.
    cell.head = 0
    parts[1] = log_header(cell)
    return keep_string(cell.key, table.concat(parts), ttl)
  end
  for place, bytes in pairs(cell.put) do
    redis.call('SETRANGE', cell.key, string.format('%d', HEADER_BYTES + place * cell.entry_bytes), bytes)
  end
  redis.call('SETRANGE', cell.key, '0', log_header(cell))
  keep_for(cell.key, ttl)
end
