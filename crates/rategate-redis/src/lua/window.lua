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
