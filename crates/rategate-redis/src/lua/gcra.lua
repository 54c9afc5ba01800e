-- The token bucket: one instant, the TAT, by which all that was granted will have been earned.
--
--   "us"                         the TAT; a whole number, which the store keeps in 8 bytes
--   "us+part/d"                  the same with a part of a microsecond
--   "us+part/d:back:peak"        the same once permits have come back: how many, and the highest TAT
--                                since then. No grant from before can give anything back after the peak,
--                                so until then it is kept.

local gcra = {
  numbers = { 'd', 'burst_us', 'burst_part', 'permits', 'cost_us', 'cost_part', 'unit_us', 'unit_part' },
}
kinds.g = gcra

local function gcra_parse(text, op)
  local us, part, d, back, peak = string.match(text, '^(%d+)%+(%d+)/(%d+):?(%d*):?(%d*)$')
  us, part, d = tonumber(us or string.match(text, '^%d+$')), tonumber(part or 0), tonumber(d or op.d)
  if not us or us > 2 * LAST_US then return nil end
  -- The rate has changed: less than a microsecond, against the caller.
  if d ~= op.d and part > 0 then us, part = us + 1, 0 end
  return us, part, tonumber(back) or 0, tonumber(peak) or 0
end

function gcra.read(key, op, now, call)
  local cell = { tat_us = now, tat_part = 0, back = 0, peak_us = 0, d = op.d }
  local text = redis.call('GET', key)
  if not text or is_over(key) then return cell end
  local us, part, back, peak_us = gcra_parse(text, op)
  if not us or us > now + op.burst_us + call.horizon_us then
    cell.tat_us, cell.tat_part = now + op.burst_us, op.burst_part
    corrected(cell, call)
  elseif us >= now or peak_us > now then
    cell.tat_us, cell.tat_part, cell.back, cell.peak_us = us, part, back, peak_us
  end
  return cell
end

-- The TAT that has come counts as now.
local function gcra_tat(cell, now)
  if cell.tat_us < now then return now, 0 end
  return cell.tat_us, cell.tat_part
end

function gcra.adopt(cell, op)
  if cell.d == op.d then return end
  if cell.tat_part > 0 then cell.tat_us, cell.tat_part = cell.tat_us + 1, 0 end
  cell.d = op.d
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

-- Behind the grant the TAT was `us + part`; what others gave back since has moved it sooner. If it still
-- stands there, nothing has been taken since, and all can come back. Else only as much as lies between that
-- and now: the time since may have made up for the rest.
function gcra.back(cell, op, now, us, part, back)
  local since = cell.back - back
  if since < 0 or us > LAST_US + op.burst_us or part >= op.d or cell.back + op.permits > LAST_US then return 0 end
  if since > 0 then
    -- What is longer than all time is not multiplied.
    if fits(us, part, op.unit_us, op.unit_part, since, op.d) < since then return 0 end
    local back_us, back_part = times(op.unit_us, op.unit_part, since, op.d)
    us, part = sub(us, part, back_us, back_part, op.d)
  end
  if cell.tat_us == us and cell.tat_part == part then return op.permits end
  if us < now then return 0 end
  us, part = sub(us, part, now, 0, op.d)
  return fits(us, part, op.unit_us, op.unit_part, op.permits, op.d)
end

function gcra.undo(cell, op, _, _, permits)
  local us, part = times(op.unit_us, op.unit_part, permits, op.d)
  cell.peak_us = math.max(cell.peak_us, cell.tat_us + 1)
  cell.tat_us, cell.tat_part = sub(cell.tat_us, cell.tat_part, us, part, op.d)
  cell.back = cell.back + permits
end

-- Of the last permit a part may have been earned.
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
  local tat_us, tat_part = gcra_tat(cell, now)
  cell.peak_us = math.max(cell.peak_us, tat_us + 1)
  cell.tat_us, cell.tat_part = sub(tat_us, tat_part, us, part, op.d)
  cell.tat_us, cell.tat_part = gcra_tat(cell, now)
  cell.back = cell.back + permits
end

function gcra.write(cell, now)
  local text
  local until_us = cell.tat_us
  if cell.tat_part > 0 then until_us = until_us + 1 end
  if cell.back > 0 then
    text = string.format('%d+%d/%d:%d:%d', cell.tat_us, cell.tat_part, cell.d, cell.back, cell.peak_us)
    until_us = math.max(until_us, cell.peak_us)
  elseif cell.tat_part > 0 then
    text = string.format('%d+%d/%d', cell.tat_us, cell.tat_part, cell.d)
  else
    text = string.format('%d', cell.tat_us)
  end
  keep_string(cell.key, text, ttl_ms(until_us, now))
end

-- The state of one bucket as its text says, if nothing has come back to it and it has no parts of another rate.
local function gcra_plain(text, d)
  if string.find(text, '^%d+$') then return tonumber(text), 0 end
  local us, part, of = string.match(text, '^(%d+)%+(%d+)/(%d+)$')
  if of and tonumber(of) == d then return tonumber(us), tonumber(part) end
end

-- The most frequent call by far, one decision of one bucket, in a step of its own: the same numbers, without the
-- tables. Whatever is out of the ordinary, this leaves to the others: nil.
local function gcra_alone(keys, args, at, now, writes)
  if #args ~= at + 17 or args[at + 4] ~= 'g' or args[at + 14] ~= '-' or args[at + 13] ~= '1'
    or not now or now < 0 or now > LAST_US then return nil end
  local key, d, burst_us = keys[1], tonumber(args[at + 5]), tonumber(args[at + 6])
  local text, us, part = redis.pcall('GET', key), now, 0
  if text and not is_over(key) then
    if type(text) ~= 'string' then return nil end
    us, part = gcra_plain(text, d)
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
    if part > 0 then
      keep_string(key, string.format('%d+%d/%d', us, part, d), ttl_ms(us + 1, now))
    else
      keep_string(key, string.format('%d', us), ttl_ms(us, now))
    end
  end
  return { 1, now, corrected, 1, tonumber(args[at + 8]), us, part, 0 }
end
