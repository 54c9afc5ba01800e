#!lua name=rategate_before_charges
-- The decisions of the first release's functions, which know no charge. They read and write the states of version 1.

-- Numbers. Lua has doubles only, which hold every whole number up to 2^53. All sums here stay
-- below that. Permits are multiplied by doubling; all other products and quotients are of points
-- of a grid, which are whole. So nothing rounds.
--
-- A length or an instant is a pair: whole microseconds, and a part of one in units of 1/d us,
-- where part < d.

-- The last valid instant, in the year 2112: sums of three such lengths stay exact.
local LAST_US = 4503599627370496

local function add(a_us, a_part, b_us, b_part, d)
  local us, part = a_us + b_us, a_part + b_part
  if part >= d then return us + 1, part - d end
  return us, part
end

local function sub(a_us, a_part, b_us, b_part, d)
  local us, part = a_us - b_us, a_part - b_part
  if part < 0 then return us - 1, part + d end
  return us, part
end

local function is_less(a_us, a_part, b_us, b_part)
  return a_us < b_us or (a_us == b_us and a_part < b_part)
end

-- Returns `count` units in sequence. The last doubling may be one too many, and is not used.
local function times(unit_us, unit_part, count, d)
  local us, part = 0, 0
  while count > 0 do
    if math.fmod(count, 2) == 1 then
      us, part = add(us, part, unit_us, unit_part, d)
      count = count - 1
    end
    count = count / 2
    unit_us, unit_part = add(unit_us, unit_part, unit_us, unit_part, d)
  end
  return us, part
end

-- Returns how many units fit in a length, up to `most`.
local function fits(us, part, unit_us, unit_part, most, d)
  if us < 0 then return 0 end
  local doubled, weight = {}, 1
  while weight <= most and not is_less(us, part, unit_us, unit_part) do
    doubled[#doubled + 1] = { unit_us, unit_part, weight }
    unit_us, unit_part = add(unit_us, unit_part, unit_us, unit_part, d)
    weight = weight * 2
  end
  local count = 0
  for at = #doubled, 1, -1 do
    local step = doubled[at]
    if not is_less(us, part, step[1], step[2]) then
      us, part = sub(us, part, step[1], step[2], d)
      count = count + step[3]
    end
  end
  return math.min(count, most)
end

-- Rounds up to the next whole multiple, and returns it as a count of steps.
local function steps_up(value, step)
  local into = math.fmod(value, step)
  if into > 0 then value = value - into + step end
  return value / step
end
-- The clock of production: the store's own, with the store's own expiry.

local function clock(_, at)
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2]), at
end

-- Returns true if a key has expired but is still in the store: never.
local function is_over(_) return false end

local function keep_string(key, value, ttl_ms)
  redis.call('SET', key, value, 'PX', string.format('%d', ttl_ms))
end

local function keep_for(key, ttl_ms)
  redis.call('PEXPIRE', key, string.format('%d', ttl_ms))
end
-- The interface of the kinds of limits. A kind has:
--
--   numbers                           the names of the numbers after its letter in the arguments
--   read(key, op, now, call)          reads a cell: the state of a key, for the time of one call
--   opening(cell, op, now)            the first whole microsecond at which op.permits pass;
--                                     false: never
--   room(cell, op, now)               how many permits would pass now, at most op.permits
--   take(cell, op, now, permits, id)  records a grant
--   tell(cell, op, now)               three whole numbers: the permits that remain follow from
--                                     them, and after a grant a refund needs them
--   back(cell, op, now, a, b, c)      how many of op.permits of such a grant can be refunded
--   undo(cell, op, now, permits, a)   refunds permits of such a grant
--   owed(cell, op, now)               how many of op.permits were taken and not earned again
--   credit(cell, op, now, permits)    credits permits, of any grants
--   adopt(cell, op, now, call)        carries the cell over to other numbers
--   write(cell, now)                  writes the cell to its key
--
-- A cell that the clock of another server has left too far ahead counts as if all permits had
-- just been taken: it denies, and recovers by itself.

local kinds = {}

-- The time until the first whole millisecond at which the state equals a fresh one, plus one.
local function ttl_ms(until_us, now)
  return math.max(1, steps_up(math.max(0, until_us - now), 1000) + 1)
end

local function corrected(cell, call)
  cell.is_dirty = true
  call.corrected = call.corrected + 1
end

-- Returns true if the store's marker differs from the one the caller knows: any state may have
-- been lost with it. In a cluster it lies in another slot than the keys of the call, and may have
-- moved away.
local function is_doubted(marker, known)
  return marker ~= '' and redis.pcall('GET', marker) ~= known
end
-- The token bucket. Its state is one instant, the TAT, by which all that was granted will have
-- been earned, and the rate it was written at, as the time of one permit.
--
--   "us@unit_us"                              both in whole microseconds
--   "us+part/d@unit_us+unit_part"             with parts of a microsecond
--   "us+part/d@unit_us+unit_part:back:peak"   after refunds: the permits that came back, and the
--                                             highest TAT since. No earlier grant can be refunded
--                                             after the peak, so the state is kept until then.

local gcra = {
  numbers = { 'd', 'burst_us', 'burst_part', 'permits', 'cost_us', 'cost_part', 'unit_us', 'unit_part' },
}
kinds.g = gcra

-- A change of the rate counts as a refund of more permits than can be refunded within the time of
-- one grant.
local CHANGE = 4294967296

local function gcra_parse(text)
  local us, unit_us = string.match(text, '^(%d+)@(%d+)$')
  local cell = { tat_us = tonumber(us), tat_part = 0, d = 1, unit_us = tonumber(unit_us), unit_part = 0, back = 0, peak_us = 0 }
  if not us then
    local part, d, unit_part, rest, back, peak
    us, part, d, unit_us, unit_part, rest = string.match(text, '^(%d+)%+(%d+)/(%d+)@(%d+)%+(%d+)(.*)$')
    if not us then return nil end
    if rest ~= '' then
      back, peak = string.match(rest, '^:(%d+):(%d+)$')
      if not back then return nil end
    end
    cell.tat_us, cell.tat_part, cell.d = tonumber(us), tonumber(part), tonumber(d)
    cell.unit_us, cell.unit_part = tonumber(unit_us), tonumber(unit_part)
    cell.back, cell.peak_us = tonumber(back or 0), tonumber(peak or 0)
  end
  if cell.tat_us > 2 * LAST_US or cell.tat_part >= cell.d or cell.unit_part >= cell.d
    or cell.unit_us + cell.unit_part == 0 then return nil end
  return cell
end

-- Returns how many units fit in a length times a whole number, and the rest: by doubling, from
-- the top bit.
local function scaled(us, part, by, unit_us, unit_part, d)
  local count, left_us, left_part = 0, 0, 0
  local function add_to_left(more_us, more_part)
    left_us, left_part = add(left_us, left_part, more_us, more_part, d)
    if not is_less(left_us, left_part, unit_us, unit_part) then
      left_us, left_part = sub(left_us, left_part, unit_us, unit_part, d)
      count = count + 1
    end
  end
  local bit = 1
  while bit * 2 <= by do bit = bit * 2 end
  while bit >= 1 do
    count = count * 2
    add_to_left(left_us, left_part)
    if by >= bit then
      by = by - bit
      add_to_left(us, part)
    end
    bit = bit / 2
  end
  return count, left_us, left_part
end

-- Adopts another rate. Permits in use stay in use, rounded up by less than two parts of a
-- microsecond. More than the new burst holds and a horizon earns counts as the new burst.
function gcra.adopt(cell, op, now, call)
  if cell.d == op.d and cell.unit_us == op.unit_us and cell.unit_part == op.unit_part then return end
  local old_d, old_us, old_part = cell.d, cell.unit_us, cell.unit_part
  local us, part, was_us = 0, 0, cell.tat_us
  if cell.tat_us >= now then us, part = sub(cell.tat_us, cell.tat_part, now, 0, old_d) end
  cell.d, cell.unit_us, cell.unit_part = op.d, op.unit_us, op.unit_part
  cell.tat_us, cell.tat_part = now, 0
  local count = fits(us, part, old_us, old_part, LAST_US, old_d)
  local count_us, count_part = times(old_us, old_part, count, old_d)
  us, part = sub(us, part, count_us, count_part, old_d)
  if fits(op.burst_us + call.horizon_us, 0, op.unit_us, op.unit_part, count, op.d) < count then
    cell.tat_us, cell.tat_part = add(now, 0, op.burst_us, op.burst_part, op.d)
  else
    local whole_us, whole_part = times(op.unit_us, op.unit_part, count, op.d)
    cell.tat_us, cell.tat_part = now + whole_us, whole_part
    -- The rest of one permit.
    local more_us, left_us, left_part = scaled(us, part, op.unit_us, old_us, old_part, old_d)
    local parts, rest_us, rest_part = scaled(left_us, left_part, op.d, old_us, old_part, old_d)
    local more_parts, last_us, last_part = scaled(us, part, op.unit_part, old_us, old_part, old_d)
    if rest_us + rest_part + last_us + last_part > 0 then parts = parts + 1 end
    if rest_us + rest_part > 0 and last_us + last_part > 0 then parts = parts + 1 end
    parts = parts + more_parts
    local parts_us = math.floor(parts / op.d)
    cell.tat_us, cell.tat_part = add(cell.tat_us, cell.tat_part, more_us + parts_us, parts - parts_us * op.d, op.d)
  end
  -- Grants from before cannot be refunded, for as long as one of them could still try.
  cell.back = math.min(cell.back + CHANGE, LAST_US)
  cell.peak_us = math.max(cell.peak_us, was_us + 1, cell.tat_us + 1)
  cell.is_dirty = true
end

function gcra.read(key, op, now, call)
  local fresh = {
    tat_us = now, tat_part = 0, back = 0, peak_us = 0, d = op.d, unit_us = op.unit_us, unit_part = op.unit_part,
  }
  local text = redis.call('GET', key)
  if not text or is_over(key) then return fresh end
  local cell = gcra_parse(text)
  if cell then gcra.adopt(cell, op, now, call) end
  if not cell or cell.tat_us > now + op.burst_us + call.horizon_us then
    fresh.tat_us, fresh.tat_part = now + op.burst_us, op.burst_part
    corrected(fresh, call)
    return fresh
  end
  if cell.tat_us < now and cell.peak_us <= now then return fresh end
  return cell
end

-- A TAT in the past counts as now.
local function gcra_tat(cell, now)
  if cell.tat_us < now then return now, 0 end
  return cell.tat_us, cell.tat_part
end

function gcra.opening(cell, op, now)
  local us, part = gcra_tat(cell, now)
  us, part = add(us, part, op.cost_us, op.cost_part, op.d)
  us, part = sub(us, part, op.burst_us, op.burst_part, op.d)
  if part > 0 then us = us + 1 end
  return us
end

function gcra.room(cell, op, now)
  local us, part = gcra_tat(cell, now)
  us, part = sub(now + op.burst_us, op.burst_part, us, part, op.d)
  return fits(us, part, op.unit_us, op.unit_part, op.permits, op.d)
end

function gcra.take(cell, op, now, permits)
  local us, part = op.cost_us, op.cost_part
  if permits ~= op.permits then us, part = times(op.unit_us, op.unit_part, permits, op.d) end
  local tat_us, tat_part = gcra_tat(cell, now)
  cell.tat_us, cell.tat_part = add(tat_us, tat_part, us, part, op.d)
  if cell.back > 0 then cell.peak_us = math.max(cell.peak_us, cell.tat_us + 1) end
end

function gcra.tell(cell, _, now)
  local us, part = gcra_tat(cell, now)
  return us, part, cell.back
end

-- After the grant the TAT was `us + part`; refunds of other grants since have moved it sooner. If
-- it is still that, nothing has been taken since, and all permits can be refunded. Otherwise only
-- as much as lies between that and now: the time since may have made up for the rest.
function gcra.back(cell, op, now, us, part, back)
  local since = cell.back - back
  if since < 0 or us > LAST_US + op.burst_us or part >= op.d or cell.back + op.permits > LAST_US then return 0 end
  if since > 0 then
    -- A length beyond all valid instants is not multiplied.
    if fits(us, part, op.unit_us, op.unit_part, since, op.d) < since then return 0 end
    local back_us, back_part = times(op.unit_us, op.unit_part, since, op.d)
    us, part = sub(us, part, back_us, back_part, op.d)
  end
  if cell.tat_us == us and cell.tat_part == part then return op.permits end
  if us < now then return 0 end
  us, part = sub(us, part, now, 0, op.d)
  return fits(us, part, op.unit_us, op.unit_part, op.permits, op.d)
end

function gcra.undo(cell, op, _, permits)
  local us, part = times(op.unit_us, op.unit_part, permits, op.d)
  cell.peak_us = math.max(cell.peak_us, cell.tat_us + 1)
  cell.tat_us, cell.tat_part = sub(cell.tat_us, cell.tat_part, us, part, op.d)
  cell.back = cell.back + permits
end

-- A part of the last permit may have been earned.
function gcra.owed(cell, op, now)
  local us, part = gcra_tat(cell, now)
  us, part = sub(us, part, now, 0, op.d)
  if cell.back + op.permits > LAST_US then return 0 end
  local count = fits(us, part, op.unit_us, op.unit_part, op.permits, op.d)
  local whole_us, whole_part = times(op.unit_us, op.unit_part, count, op.d)
  if count < op.permits and is_less(whole_us, whole_part, us, part) then return count + 1 end
  return count
end

function gcra.credit(cell, op, now, permits)
  cell.tat_us, cell.tat_part = gcra_tat(cell, now)
  gcra.undo(cell, op, now, permits)
  cell.tat_us, cell.tat_part = gcra_tat(cell, now)
end

local function gcra_text(us, part, d, unit_us, unit_part)
  if d == 1 then return string.format('%d@%d', us, unit_us) end
  return string.format('%d+%d/%d@%d+%d', us, part, d, unit_us, unit_part)
end

function gcra.write(cell, now)
  local text
  local until_us = cell.tat_us
  if cell.tat_part > 0 then until_us = until_us + 1 end
  if cell.back > 0 then
    text = string.format('%d+%d/%d@%d+%d:%d:%d', cell.tat_us, cell.tat_part, cell.d, cell.unit_us, cell.unit_part,
      cell.back, cell.peak_us)
    until_us = math.max(until_us, cell.peak_us)
  else
    text = gcra_text(cell.tat_us, cell.tat_part, cell.d, cell.unit_us, cell.unit_part)
  end
  keep_string(cell.key, text, ttl_ms(until_us, now))
end

-- Reads the state of a bucket from its text, if it was written at this rate and nothing was
-- refunded since.
local function gcra_plain(text, d, unit_us, unit_part)
  local us, part, of, of_us, of_part = string.match(text, '^(%d+)@(%d+)$')
  if us then
    if d == '1' and part == unit_us then return tonumber(us), 0 end
    return nil
  end
  us, part, of, of_us, of_part = string.match(text, '^(%d+)%+(%d+)/(%d+)@(%d+)%+(%d+)$')
  if of == d and of_us == unit_us and of_part == unit_part then return tonumber(us), tonumber(part) end
end

-- Decides the most frequent call by far, one decision of one bucket, without the tables; the
-- numbers are the same. Returns nil for any other call, which the general code then decides.
local function gcra_alone(keys, args, at, now, writes)
  if #args ~= at + 17 or args[at + 4] ~= 'g' or args[at + 14] ~= '-' or args[at + 13] ~= '1'
    or not now or now < 0 or now > LAST_US then return nil end
  local key, d, burst_us = keys[1], tonumber(args[at + 5]), tonumber(args[at + 6])
  local text, us, part = redis.pcall('GET', key), now, 0
  if text and not is_over(key) then
    if type(text) ~= 'string' then return nil end
    us, part = gcra_plain(text, args[at + 5], args[at + 11], args[at + 12])
    if not us or us > now + burst_us + tonumber(args[at + 2]) then return nil end
    if us < now then us, part = now, 0 end
  end
  local corrected = is_doubted(args[at], args[at + 1]) and -1 or 0
  local next_us, next_part = add(us, part, tonumber(args[at + 9]), tonumber(args[at + 10]), d)
  local opens_us, opens_part = sub(next_us, next_part, burst_us, tonumber(args[at + 7]), d)
  if opens_part > 0 then opens_us = opens_us + 1 end
  if opens_us > now then return { 1, now, corrected, 0, opens_us - now, us, part, 0 } end
  if writes then
    us, part = next_us, next_part
    local text = gcra_text(us, part, d, tonumber(args[at + 11]), tonumber(args[at + 12]))
    keep_string(key, text, ttl_ms(part > 0 and us + 1 or us, now))
  end
  return { 1, now, corrected, 1, tonumber(args[at + 8]), us, part, 0 }
end
-- The fixed window: "start:used:period", the start of the newest window, its granted permits, and
-- its length.

local window = { numbers = { 'period_us', 'most', 'permits' } }
kinds.w = window

local function window_start(now, period_us)
  return now - math.fmod(now, period_us)
end

function window.read(key, op, now, call)
  local start_us = window_start(now, op.period_us)
  local cell = { start_us = start_us, used = 0, period_us = op.period_us }
  local text = redis.call('GET', key)
  if not text or is_over(key) then return cell end
  local kept_us, used, period_us = string.match(text, '^(%d+):(%d+):(%d+)$')
  kept_us, period_us = tonumber(kept_us), tonumber(period_us)
  if not kept_us or kept_us > now + op.period_us + call.horizon_us then
    cell.used = op.most
    corrected(cell, call)
  elseif kept_us + period_us > now then
    -- After the clock went back, the newest window goes on.
    cell.start_us, cell.used, cell.period_us = kept_us, tonumber(used), period_us
    window.adopt(cell, op, now)
  end
  return cell
end

-- Permits used in the old window count as used in the window of the new grid.
function window.adopt(cell, op, now)
  if cell.period_us == op.period_us then return end
  cell.start_us, cell.period_us = window_start(math.max(now, cell.start_us), op.period_us), op.period_us
  cell.is_dirty = true
end

function window.opening(cell, op, now)
  if cell.used + op.permits <= op.most then return now end
  return cell.start_us + op.period_us
end

function window.room(cell, op)
  return math.max(0, math.min(op.permits, op.most - cell.used))
end

function window.take(cell, _, _, permits)
  cell.used = cell.used + permits
end

function window.tell(cell)
  return cell.start_us, cell.used, 0
end

function window.back(cell, op, _, start_us)
  if start_us ~= cell.start_us then return 0 end
  return math.min(op.permits, cell.used)
end

function window.undo(cell, _, _, permits)
  cell.used = cell.used - permits
end

function window.owed(cell, op)
  return math.min(op.permits, cell.used)
end

window.credit = window.undo

function window.write(cell, now)
  local text = string.format('%d:%d:%d', cell.start_us, cell.used, cell.period_us)
  keep_string(cell.key, text, ttl_ms(cell.start_us + cell.period_us, now))
end
-- The sliding log: a ring of entries in one string, changed in place.
--
--   header   form, widths of a gap and of a count, capacity; the slot of the oldest entry, the
--            number of entries; the points of the oldest and the newest, all permits, the grid
--   entries  the gap: how many points after the entry before; the count of permits
--
-- A grant counts as made at the next point of the grid, which by default is every microsecond. A
-- decision reads and writes one entry, however long the log.

local HEADER = '<BBBI4I4I4I7I7I7I7'
local HEADER_BYTES = 43
local FORM = 1
local MOST_ENTRIES = 65536
-- The number of entries fetched at once.
local CHUNK = 32

local log = { numbers = { 'held_us', 'grid_us', 'most', 'permits', 'gap_bytes', 'count_bytes', 'capacity' } }
kinds.l = log

-- Returns the gap and the count of the entry in a slot of the ring.
local function log_entry(cell, place)
  local bytes = cell.put[place]
  if not bytes then
    local chunk = math.floor(place / CHUNK)
    local text = cell.chunks[chunk]
    if not text then
      local from = HEADER_BYTES + chunk * CHUNK * cell.entry_bytes
      text = redis.call('GETRANGE', cell.key, string.format('%d', from), string.format('%d', from + CHUNK * cell.entry_bytes - 1))
      cell.chunks[chunk] = text
    end
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

-- Empties the cell, and marks everything in the store as obsolete.
local function log_clear(cell, op)
  log_shape(cell, op.gap_bytes, op.count_bytes, op.capacity, op.grid_us)
  cell.head, cell.length, cell.total, cell.oldest, cell.newest = 0, 0, 0, 0, 0
  cell.put, cell.chunks, cell.is_whole = {}, {}, true
end

local function log_append(cell, point, permits)
  local last = cell.length - 1
  if last >= 0 and cell.newest >= point then
    local place = log_place(cell, last)
    local gap, count = log_entry(cell, place)
    cell.put[place] = struct.pack(cell.entry, gap, count + permits)
  else
    local gap = 0
    if last >= 0 then gap = point - cell.newest else cell.oldest = point end
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

-- Writes the log anew, under the numbers of `op`. A capacity below the number of entries means
-- fewer permits, too: the dropped entries are older than the newest `most` permits, and decide
-- nothing.
local function log_rewrite(cell, op, keep)
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
  local cell = { key = key, held_us = op.held_us }
  -- Reads the first entries, too; a short log is read whole.
  local until_byte = HEADER_BYTES + CHUNK * (op.gap_bytes + op.count_bytes)
  local text = redis.call('GETRANGE', key, '0', string.format('%d', until_byte - 1))
  if text == '' or is_over(key) then
    log_clear(cell, op)
    return cell
  end
  if not log_parse(cell, text) or cell.newest * cell.grid_us > now + op.grid_us + call.horizon_us then
    log_clear(cell, op)
    log_append(cell, steps_up(now, op.grid_us), op.most)
    corrected(cell, call)
    return cell
  end
  if cell.entry_bytes == op.gap_bytes + op.count_bytes then cell.chunks[0] = string.sub(text, HEADER_BYTES + 1) end
  log_forget(cell, op, log_now(cell, now))
  log.adopt(cell, op)
  return cell
end

function log.adopt(cell, op)
  cell.held_us = math.max(cell.held_us, op.held_us)
  if cell.gap_bytes ~= op.gap_bytes or cell.count_bytes ~= op.count_bytes or cell.capacity ~= op.capacity
    or cell.grid_us ~= op.grid_us then
    log_rewrite(cell, op, function(_, count) return count end)
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
  log_append(cell, steps_up(log_now(cell, now), op.grid_us), permits)
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
    log_rewrite(cell, op, function(point, held)
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

local function log_header(cell)
  return struct.pack(HEADER, FORM, cell.gap_bytes, cell.count_bytes, cell.capacity, cell.head, cell.length,
    cell.oldest, cell.newest, cell.total, cell.grid_us)
end

function log.write(cell, now)
  if cell.length == 0 then return redis.call('DEL', cell.key) end
  local ttl = ttl_ms(cell.newest * cell.grid_us + cell.held_us, now)
  if cell.is_whole then
    local parts = { log_header(cell) }
    for index = 0, cell.length - 1 do parts[index + 2] = cell.put[log_place(cell, index)] end
    -- The head may not be the first slot, if entries of the same call were added and removed.
    if cell.head ~= 0 then
      cell.head = 0
      parts[1] = log_header(cell)
    end
    return keep_string(cell.key, table.concat(parts), ttl)
  end
  for place, bytes in pairs(cell.put) do
    redis.call('SETRANGE', cell.key, string.format('%d', HEADER_BYTES + place * cell.entry_bytes), bytes)
  end
  redis.call('SETRANGE', cell.key, '0', log_header(cell))
  keep_for(cell.key, ttl)
end
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
    local opening = op.kind.opening(cells[index], op, now)
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
-- The reply is 1 and the number of permits, or 0 and the number of microseconds until the same
-- call passes, -1 if time alone cannot help. 2 is a repeated 1, and renews what is held. 3 is a
-- key that holds data of another kind, and nothing was taken. Three numbers for each limit
-- follow. Returns true if permits were taken.
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
    reply[#reply + 1], reply[#reply + 2] = 0, opens_us and opens_us - now or -1
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

redis.register_function{ function_name = 'rategate_before_charges_decide', callback = verbs.decide, flags = { 'allow-oom', 'allow-cross-slot-keys' } }
redis.register_function{ function_name = 'rategate_before_charges_peek', callback = verbs.peek, flags = { 'allow-oom', 'allow-cross-slot-keys' } }
