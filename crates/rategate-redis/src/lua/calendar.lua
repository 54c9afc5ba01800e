-- The calendar quota: "start:end:number:digest:used", the newest window with its number, the
-- calendar that it is of, and its granted permits. The borders of three windows come with each
-- call, and the one around the clock is taken. Marked as a fixed window is.

local calendar = { numbers = { 'b0', 'b1', 'b2', 'b3', 'number', 'digest', 'most', 'permits' } }
kinds.k = calendar

-- Picks the window around the clock. A call that names other windows is refused as a whole.
function calendar.place(op, now)
  if now >= op.b1 and now < op.b2 then
    op.start_us, op.end_us, op.nth = op.b1, op.b2, 2
  elseif now >= op.b0 and now < op.b1 then
    op.start_us, op.end_us, op.nth, op.number = op.b0, op.b1, 1, op.number - 1
  elseif now >= op.b2 and now < op.b3 then
    op.start_us, op.end_us, op.nth, op.number = op.b2, op.b3, 3, op.number + 1
  else
    error(string.format('RATEGATE OTHER TIME %d ', now))
  end
  -- No window is twice as long as the longest of three.
  op.later_us = 2 * math.max(op.b1 - op.b0, op.b2 - op.b1, op.b3 - op.b2)
end

-- Begins the window around the clock with a count.
local function calendar_begin(cell, op, used)
  cell.start_us, cell.end_us, cell.number, cell.digest = op.start_us, op.end_us, op.number, op.digest
  cell.used, cell.is_past = used, nil
end

-- Marks a window whose end has come: what ends later brings nothing back to it.
function calendar.pass(cell, _, now)
  if now >= cell.end_us then cell.is_past = true end
end

function calendar.read(key, op, now, call)
  local cell = { key = key, later_us = op.later_us }
  calendar_begin(cell, op, 0)
  local text, pays, replaces, open = read_state(key, call)
  cell.replaces = replaces
  if not text then return cell end
  if is_over(key) then
    cell.replaces = true
    return cell
  end
  local start_us, end_us, number, digest, used = string.match(text, '^(%d+):(%d+):(%d+):(%d+):(%d+)$')
  start_us, end_us, used = tonumber(start_us), tonumber(end_us), tonumber(used)
  if not start_us or end_us <= start_us or used > MOST_USED then
    cell.used = op.most
    if open then cell.replaces = true end
    corrected(cell, call)
    return cell
  end
  cell.open = open
  follow_clock(cell, now, call)
  if start_us > op.end_us + call.horizon_us then
    cell.used, cell.mark = math.max(used, op.most), pays and op.most
    if not cell.is_dirty then corrected(cell, call) end
    end_due(cell, op, now)
    return cell
  end
  cell.start_us, cell.end_us, cell.number, cell.digest = start_us, end_us, tonumber(number), tonumber(digest)
  cell.used, cell.mark = used, pays
  end_due(cell, op, now)
  if end_us > now then
    -- After the clock went back, or under other rules of the zone, the newest window goes on.
    calendar.adopt(cell, op, now)
  elseif pays then
    -- The borders of another calendar are unknown here: one has passed at least.
    local borders = tonumber(digest) == op.digest and math.max(1, op.number - tonumber(number)) or 1
    -- What cannot be computed again from this state is kept.
    if tonumber(digest) ~= op.digest or op.number <= tonumber(number) then cell.is_dirty = true end
    calendar_begin(cell, op, used_after(cell, borders))
    calendar.adopt(cell, op, now)
  else
    calendar_begin(cell, op, 0)
  end
  return cell
end

-- Permits used in the window of another calendar count as used in the one around now.
function calendar.adopt(cell, op)
  if cell.mark and cell.mark ~= op.most then
    cell.mark = cell.used > math.max(cell.mark, op.most) and op.most or nil
    cell.is_dirty = true
  end
  if cell.digest ~= op.digest then
    calendar_begin(cell, op, cell.used)
    cell.later_us, cell.is_dirty = op.later_us, true
  end
end

-- Returns the end of the window. A carried debt may take more borders, which the caller knows: their
-- number is in the reply.
function calendar.opening(cell, op, now)
  local over = cell.used + op.permits - op.most
  cell.borders = over > 0 and borders_until(cell, op) or 0
  return over > 0 and cell.end_us or now
end

-- Returns the start of the window, or the number of borders until the call passes if there are
-- several; the count; and the end of the window, doubled, and one if it is a number of borders.
function calendar.tell(cell)
  if (cell.borders or 0) > 1 then return cell.borders, cell.used, 2 * cell.end_us + 1 end
  return cell.start_us, cell.used, 2 * cell.end_us
end

calendar.room, calendar.take, calendar.charge = window.room, window.take, window.charge
calendar.undo, calendar.owed, calendar.credit, calendar.debt = window.undo, window.owed, window.undo, window.debt

-- Windows of two calendars may begin together. One that has ended ends before any that is begun.
function calendar.back(cell, op, now, start_us, _, end_and_mark)
  if end_and_mark ~= 2 * cell.end_us then return 0 end
  return window.back(cell, op, now, start_us)
end

function calendar.ticket(cell)
  return cell.end_us
end

function calendar.give_back(cell, _, _, end_us, permits)
  if cell.is_past or end_us ~= cell.end_us then return 0 end
  local back = math.min(permits, cell.used)
  cell.used = cell.used - back
  return back
end

-- Keeps a carried debt for as long as it lasts at most.
function calendar.write(cell, now)
  local text = string.format('%d:%d:%d:%d:%d', cell.start_us, cell.end_us, cell.number, cell.digest, cell.used)
  local later = borders_until_fresh(cell) - 1
  local until_us = math.min(LAST_TAT_US, cell.end_us + later * cell.later_us)
  if cell.open and cell.open.count > 0 then return keep_held(cell, text, cell.mark, until_us, now, {}) end
  keep_state(cell, text, cell.mark, ttl_ms(until_us, now))
end
