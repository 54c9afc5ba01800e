-- The fixed window: "start:used", where the newest window starts and what it has granted.

local window = { numbers = { 'period_us', 'most', 'permits' } }
kinds.w = window

function window.read(key, op, now, call)
  local start_us = now - math.fmod(now, op.period_us)
  local cell = { start_us = start_us, used = 0, period_us = op.period_us }
  local text = redis.call('GET', key)
  if not text or is_over(key) then return cell end
  local kept_us, used = string.match(text, '^(%d+):(%d+)$')
  kept_us, used = tonumber(kept_us), tonumber(used)
  if not kept_us or kept_us > now + op.period_us + call.horizon_us then
    cell.used = op.most
    corrected(cell, call)
  elseif kept_us >= start_us then
    -- A clock that went back stays in the newest window.
    cell.start_us, cell.used = kept_us, used
  end
  return cell
end

function window.adopt(cell, op)
  cell.period_us = math.max(cell.period_us, op.period_us)
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

function window.undo(cell, _, _, _, permits)
  cell.used = cell.used - permits
end

function window.owed(cell, op)
  return math.min(op.permits, cell.used)
end

function window.credit(cell, _, _, permits)
  cell.used = cell.used - permits
end

function window.write(cell, now)
  local text = string.format('%d:%d', cell.start_us, cell.used)
  keep_string(cell.key, text, ttl_ms(cell.start_us + cell.period_us, now))
end
