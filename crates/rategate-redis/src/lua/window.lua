-- The fixed window: "start:used:period", the start of the newest window, its granted permits, and
-- its length. A window that carries a debt is marked with the number of permits that each border
-- pays.

local window = { numbers = { 'period_us', 'most', 'permits' } }
kinds.w = window

-- The maximum number of permits that charges bring into a window.
local MOST_USED = 4503599627370496

local function window_start(now, period_us)
  return now - math.fmod(now, period_us)
end

-- Returns what is used after some borders: each pays for a window of a carried debt, and the first
-- ends any other count.
local function used_after(cell, borders)
  -- A product that does not fit in a double is larger than what is used all the same.
  return cell.mark and math.max(0, cell.used - borders * cell.mark) or 0
end

-- Returns the number of borders after which the permits of a call pass.
local function borders_until(cell, op)
  local over = cell.used + op.permits - op.most
  return cell.mark and math.max(1, steps_up(over, op.most)) or 1
end

-- Returns the number of borders after which nothing is used.
local function borders_until_fresh(cell)
  return cell.mark and math.max(1, steps_up(cell.used, cell.mark)) or 1
end

-- Moves a window whose end has come on to that of an instant. At each border a carried debt is paid
-- for a window.
function window.pass(cell, op, now)
  local period_us = cell.period_us
  if cell.start_us + period_us > now then return end
  local since_us = now - cell.start_us
  local borders = (since_us - math.fmod(since_us, period_us)) / period_us
  cell.start_us, cell.used = cell.start_us + borders * period_us, used_after(cell, borders)
end

function window.read(key, op, now, call)
  local start_us = window_start(now, op.period_us)
  local cell = { key = key, start_us = start_us, used = 0, period_us = op.period_us }
  local text, pays, replaces, open = read_state(key, call)
  cell.replaces = replaces
  if not text then return cell end
  if is_over(key) then
    cell.replaces = true
    return cell
  end
  local kept_us, used, period_us = string.match(text, '^(%d+):(%d+):(%d+)$')
  kept_us, used, period_us = tonumber(kept_us), tonumber(used), tonumber(period_us)
  if not kept_us or period_us == 0 or used > MOST_USED then
    cell.used = op.most
    if open then cell.replaces = true end
    corrected(cell, call)
    return cell
  end
  cell.open = open
  follow_clock(cell, now, call)
  if kept_us > now + op.period_us + call.horizon_us then
    cell.used, cell.mark = math.max(used, op.most), pays and op.most
    if not cell.is_dirty then corrected(cell, call) end
    end_due(cell, op, now)
    return cell
  end
  -- After the clock went back, the newest window goes on. A window that is over leaves nothing.
  if open or pays or kept_us + period_us > now then
    cell.start_us, cell.used, cell.period_us, cell.mark = kept_us, used, period_us, pays
    end_due(cell, op, now)
    window.pass(cell, op, now)
    window.adopt(cell, op, now)
  end
  return cell
end

-- Permits used in the old window count as used in the window of the new grid.
function window.adopt(cell, op, now)
  if cell.mark and cell.mark ~= op.most then
    cell.mark = cell.used > math.max(cell.mark, op.most) and op.most or nil
    cell.is_dirty = true
  end
  if cell.period_us == op.period_us then return end
  cell.start_us, cell.period_us = window_start(math.max(now, cell.start_us), op.period_us), op.period_us
  cell.is_dirty = true
end

function window.opening(cell, op, now)
  local over = cell.used + op.permits - op.most
  if over <= 0 then return now end
  return cell.start_us + borders_until(cell, op) * op.period_us
end

function window.room(cell, op)
  return math.max(0, math.min(op.permits, op.most - cell.used))
end

-- A debt that has been paid is over, and the next one ends in its own way.
local function window_count(cell, op, permits, is_carried)
  cell.mark = (is_carried or cell.mark and cell.used > op.most) and op.most or nil
  cell.used = cell.used + permits
end

function window.take(cell, op, _, permits)
  window_count(cell, op, permits, false)
end

-- Counts at most up to `bound` permits in the window.
function window.charge(cell, op, _, permits, bound, is_carried)
  local booked = math.min(permits, math.max(0, bound - cell.used))
  if booked > 0 then window_count(cell, op, booked, is_carried) end
  return booked
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

function window.ticket(cell)
  return cell.start_us
end

function window.give_back(cell, _, _, start_us, permits)
  if start_us ~= cell.start_us then return 0 end
  local back = math.min(permits, cell.used)
  cell.used = cell.used - back
  return back
end

function window.debt(cell, op)
  return math.max(0, cell.used - op.most)
end

function window.write(cell, now)
  local text = string.format('%d:%d:%d', cell.start_us, cell.used, cell.period_us)
  local until_us = cell.start_us + borders_until_fresh(cell) * cell.period_us
  if cell.open and cell.open.count > 0 then return keep_held(cell, text, cell.mark, until_us, now, {}) end
  keep_state(cell, text, cell.mark, ttl_ms(until_us, now))
end
