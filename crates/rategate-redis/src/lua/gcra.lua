-- The token bucket. Its state is one instant, the TAT, by which all that was granted will have
-- been earned, and the numbers it was written with, as the times of one permit and of the burst.
--
--   "us@unit_us*burst_us"             all in whole microseconds
--   "us+part/d@unit_us+unit_part*burst_us+burst_part"   with parts of a microsecond
--   "...:back:peak"                   after refunds: the permits that came back, and the highest
--                                     TAT since. No earlier grant can be refunded after the peak,
--                                     so the state is kept until then.
--
-- A charge that leaves a debt marks the state with the instant of its writing, until the next
-- grant. A marked TAT is believed however far ahead it lies. If the clock is behind that instant
-- by more than the horizon, the debt moves with the clock.

local gcra = {
  numbers = { 'd', 'burst_us', 'burst_part', 'permits', 'cost_us', 'cost_part', 'unit_us', 'unit_part' },
}
kinds.g = gcra

-- A change of the rate counts as a refund of more permits than can be refunded within the time of
-- one grant.
local CHANGE = 4294967296

local function gcra_parse(text)
  local us, unit_us, burst_us = string.match(text, '^(%d+)@(%d+)%*(%d+)$')
  local cell = {
    tat_us = tonumber(us), tat_part = 0, d = 1, unit_us = tonumber(unit_us), unit_part = 0,
    burst_us = tonumber(burst_us), burst_part = 0, back = 0, peak_us = 0,
  }
  if not us then
    local part, d, unit_part, burst_part, rest, back, peak
    us, part, d, unit_us, unit_part, burst_us, burst_part, rest =
      string.match(text, '^(%d+)%+(%d+)/(%d+)@(%d+)%+(%d+)%*(%d+)%+(%d+)(.*)$')
    if not us then return nil end
    if rest ~= '' then
      back, peak = string.match(rest, '^:(%d+):(%d+)$')
      if not back then return nil end
    end
    cell.tat_us, cell.tat_part, cell.d = tonumber(us), tonumber(part), tonumber(d)
    cell.unit_us, cell.unit_part = tonumber(unit_us), tonumber(unit_part)
    cell.burst_us, cell.burst_part = tonumber(burst_us), tonumber(burst_part)
    cell.back, cell.peak_us = tonumber(back or 0), tonumber(peak or 0)
  end
  if cell.tat_us > 2 * LAST_US or cell.tat_part >= cell.d or cell.unit_part >= cell.d
    or cell.burst_us > LAST_TAT_US or cell.burst_part >= cell.d
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

-- Returns a length in permits at one rate as their time at another, rounded up or down by less than
-- two parts of a microsecond; nil if it is longer than all instants.
local function rescaled(us, part, old, op, is_up)
  local count = fits(us, part, old.unit_us, old.unit_part, LAST_US, old.d)
  if fits(LAST_TAT_US, 0, op.unit_us, op.unit_part, count, op.d) < count then return nil end
  local count_us, count_part = times(old.unit_us, old.unit_part, count, old.d)
  us, part = sub(us, part, count_us, count_part, old.d)
  local whole_us, whole_part = times(op.unit_us, op.unit_part, count, op.d)
  -- The rest of one permit.
  local more_us, left_us, left_part = scaled(us, part, op.unit_us, old.unit_us, old.unit_part, old.d)
  local parts, rest_us, rest_part = scaled(left_us, left_part, op.d, old.unit_us, old.unit_part, old.d)
  local more_parts, last_us, last_part = scaled(us, part, op.unit_part, old.unit_us, old.unit_part, old.d)
  if is_up and rest_us + rest_part > 0 then parts = parts + 1 end
  if is_up and last_us + last_part > 0 then parts = parts + 1 end
  parts = parts + more_parts
  local parts_us = math.floor(parts / op.d)
  return add(whole_us, whole_part, more_us + parts_us, parts - parts_us * op.d, op.d)
end

-- Carries the gaps of the leads over to another rate, each rounded down.
local function leads_rescale(cell, old, op)
  local leads = cell.leads
  if not leads then return end
  leads.us, leads.part = 0, 0
  local serial, gap = gap_from(cell, 0)
  while serial do
    local us, part = rescaled(gap[1], gap[2], old, op)
    if not us then us, part = LAST_TAT_US, 0 end
    leads_add(leads, us, part, op.d)
    gap_set(leads, serial, { us, part, gap[3] })
    serial, gap = gap_from(cell, serial + 1)
  end
end

-- Adopts other numbers. What is left stays left, rounded down, as far as the new burst holds it; a
-- debt stays as many permits, rounded up.
function gcra.adopt(cell, op, now, call)
  local is_same_rate = cell.d == op.d and cell.unit_us == op.unit_us and cell.unit_part == op.unit_part
  if is_same_rate and cell.burst_us == op.burst_us and cell.burst_part == op.burst_part then return end
  local old = { d = cell.d, unit_us = cell.unit_us, unit_part = cell.unit_part }
  local us, part, was_us = 0, 0, cell.tat_us
  if cell.tat_us >= now then us, part = sub(cell.tat_us, cell.tat_part, now, 0, old.d) end
  if is_less(us, part, cell.burst_us, cell.burst_part) then
    us, part = sub(cell.burst_us, cell.burst_part, us, part, old.d)
    if not is_same_rate then us, part = rescaled(us, part, old, op) end
    if us and is_less(us, part, op.burst_us, op.burst_part) then
      us, part = sub(op.burst_us, op.burst_part, us, part, op.d)
    else
      us, part = 0, 0
    end
  else
    us, part = sub(us, part, cell.burst_us, cell.burst_part, old.d)
    if not is_same_rate then us, part = rescaled(us, part, old, op, true) end
    if us then us, part = add(us, part, op.burst_us, op.burst_part, op.d) end
  end
  cell.d, cell.unit_us, cell.unit_part = op.d, op.unit_us, op.unit_part
  cell.burst_us, cell.burst_part = op.burst_us, op.burst_part
  local is_believed = cell.mark or cell.open
  if not is_believed and (not us or us > op.burst_us + call.horizon_us) then
    -- More than a bucket can owe counts as all of it.
    cell.tat_us, cell.tat_part = add(now, 0, op.burst_us, op.burst_part, op.d)
  elseif not us or us > LAST_TAT_US - now then
    cell.tat_us, cell.tat_part = LAST_TAT_US, 0
  else
    cell.tat_us, cell.tat_part = add(now, 0, us, part, op.d)
  end
  if not is_same_rate then leads_rescale(cell, old, op) end
  -- Grants from before cannot be refunded, for as long as one of them could still try.
  cell.back = math.min(cell.back + CHANGE, LAST_US)
  cell.peak_us = math.max(cell.peak_us, was_us + 1, cell.tat_us + 1)
  cell.is_dirty = true
end

-- A state with holds begins with its leads, and keeps a TAT in the past: what comes back may be of
-- permits that time has made up for.
function gcra.read(key, op, now, call)
  local fresh = {
    key = key, tat_us = now, tat_part = 0, back = 0, peak_us = 0, d = op.d,
    unit_us = op.unit_us, unit_part = op.unit_part, burst_us = op.burst_us, burst_part = op.burst_part,
  }
  local text, mark, replaces, open = read_state(key, call)
  fresh.replaces = replaces
  if not text then return fresh end
  if is_over(key) then
    fresh.replaces = true
    return fresh
  end
  local leads
  if open then leads, text = leads_parse(text) end
  local cell = text and gcra_parse(text)
  if cell then
    cell.key, cell.mark, cell.replaces, cell.open, cell.leads = key, mark, replaces, open, leads
    local back_us = 0
    if open then
      back_us = follow_clock(cell, now, call)
    elseif mark and mark > now + call.horizon_us then
      back_us = mark - now
      corrected(cell, call)
    end
    if back_us > 0 then
      cell.tat_us, cell.peak_us = cell.tat_us - back_us, math.max(0, cell.peak_us - back_us)
    end
    end_due(cell, op, now)
    gcra.adopt(cell, op, now, call)
  end
  if not cell or not mark and not open and cell.tat_us > now + op.burst_us + call.horizon_us then
    fresh.tat_us, fresh.tat_part = now + op.burst_us, op.burst_part
    if open then fresh.replaces = true end
    corrected(fresh, call)
    return fresh
  end
  if cell.tat_us < now and cell.peak_us <= now and not open then return fresh end
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
  leads_follow(cell, op, now, 0)
  local tat_us, tat_part = gcra_tat(cell, now)
  cell.tat_us, cell.tat_part = add(tat_us, tat_part, us, part, op.d)
  if cell.back > 0 then cell.peak_us = math.max(cell.peak_us, cell.tat_us + 1) end
  cell.mark = nil
end

-- Moves the TAT on, at most by `bound` microseconds beyond the burst.
function gcra.charge(cell, op, now, permits, bound)
  local us, part = gcra_tat(cell, now)
  local left_us, left_part = sub(math.min(now + op.burst_us + bound, LAST_TAT_US), op.burst_part, us, part, op.d)
  local booked = fits(left_us, left_part, op.unit_us, op.unit_part, permits, op.d)
  if booked == 0 then return 0 end
  leads_follow(cell, op, now, 0)
  local cost_us, cost_part = times(op.unit_us, op.unit_part, booked, op.d)
  cell.tat_us, cell.tat_part = add(us, part, cost_us, cost_part, op.d)
  if is_less(now + op.burst_us, op.burst_part, cell.tat_us, cell.tat_part) then cell.mark = now end
  return booked
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

-- Moves the TAT back by the time of some permits.
local function gcra_move(cell, us, part, permits)
  cell.peak_us = math.max(cell.peak_us, cell.tat_us + 1)
  cell.tat_us, cell.tat_part = sub(cell.tat_us, cell.tat_part, us, part, cell.d)
  cell.back = math.min(cell.back + permits, LAST_US)
end

function gcra.undo(cell, op, _, permits)
  local us, part = times(op.unit_us, op.unit_part, permits, op.d)
  gcra_move(cell, us, part, permits)
  leads_follow_return(cell, us, part, op.d)
end

gcra.prepare = leads_load

function gcra.ticket(cell)
  local leads = cell.leads or leads_parse()
  cell.leads = leads
  leads.open, leads.newest = leads.open + 1, leads.newest + 1
  return leads.newest
end

-- The time of a permit is that of the cell: a hold whose time is over ends before other numbers
-- count. How many of its permits came back is not told, so it counts as all of them.
function gcra.give_back(cell, _, _, serial, permits, is_over)
  local all_us, all_part = times(cell.unit_us, cell.unit_part, permits, cell.d)
  local us, part = leads_end(cell, serial, all_us, all_part, cell.d)
  if us + part == 0 then return 0 end
  if is_over or us == all_us and part == all_part then
    gcra_move(cell, us, part, permits)
    return permits
  end
  local back = fits(us, part, cell.unit_us, cell.unit_part, permits, cell.d)
  local whole_us, whole_part = times(cell.unit_us, cell.unit_part, back, cell.d)
  if is_less(whole_us, whole_part, us, part) then back = back + 1 end
  gcra_move(cell, us, part, back)
  return back
end

function gcra.debt(cell, op, now)
  local us, part = gcra_tat(cell, now)
  us, part = sub(us, part, now + op.burst_us, op.burst_part, op.d)
  local count = fits(us, part, op.unit_us, op.unit_part, LAST_US, op.d)
  local whole_us, whole_part = times(op.unit_us, op.unit_part, count, op.d)
  if us >= 0 and is_less(whole_us, whole_part, us, part) then count = count + 1 end
  return count
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
  local us, part = times(op.unit_us, op.unit_part, permits, op.d)
  local most_us, most_part = sub(cell.tat_us, cell.tat_part, now, 0, op.d)
  if is_less(most_us, most_part, us, part) then us, part = most_us, most_part end
  leads_follow(cell, op, now + us, part)
  gcra_move(cell, us, part, permits)
end

local function gcra_text(us, part, d, unit_us, unit_part, burst_us, burst_part)
  if d == 1 then return string.format('%d@%d*%d', us, unit_us, burst_us) end
  return string.format('%d+%d/%d@%d+%d*%d+%d', us, part, d, unit_us, unit_part, burst_us, burst_part)
end

function gcra.write(cell, now)
  local text
  local until_us = cell.tat_us
  if cell.tat_part > 0 then until_us = until_us + 1 end
  if cell.back > 0 then
    text = string.format('%d+%d/%d@%d+%d*%d+%d:%d:%d', cell.tat_us, cell.tat_part, cell.d, cell.unit_us, cell.unit_part,
      cell.burst_us, cell.burst_part, cell.back, cell.peak_us)
    until_us = math.max(until_us, cell.peak_us)
  else
    text = gcra_text(cell.tat_us, cell.tat_part, cell.d, cell.unit_us, cell.unit_part, cell.burst_us, cell.burst_part)
  end
  if cell.open and cell.open.count > 0 then
    local adds = {}
    leads_write(cell, adds)
    return keep_held(cell, leads_text(cell.leads) .. text, cell.mark and now, until_us, now, adds)
  end
  keep_state(cell, text, cell.mark and now, ttl_ms(until_us, now))
end
