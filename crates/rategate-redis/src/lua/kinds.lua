-- The interface of the kinds of limits. A kind has:
--
--   numbers                           the names of the numbers after its letter in the arguments
--   place(op, now)                    optional: prepares the numbers of a call for its time
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
--   charge(cell, op, now, permits, bound, is_carried)
--                                     counts permits that were used already, as many as the bound
--                                     lets; returns their number
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

-- Reads the text of a state, its mark, and what a marked state replaces: a member, or `true` for a
-- key of another type. A state with a debt that earlier releases would misread is marked with a
-- number that its kind needs. It is the only member of a sorted set, and the mark its score: those
-- releases take it for data of another kind, and leave it alone.
local function read_state(key)
  local text = redis.pcall('GET', key)
  if type(text) ~= 'table' then return text, nil, text and true end
  local found = redis.call('ZRANGEBYSCORE', key, '-inf', '+inf', 'WITHSCORES', 'LIMIT', '0', '1')
  local marked = found[1] and string.match(found[1], '^debt (.*)$')
  if not marked then error('WRONGTYPE the key holds a set of another program') end
  return marked, tonumber(found[2]), found[1]
end

-- Writes the text of a state. A marked one stays in place while it is replaced: in a cluster, a key
-- that is missing cannot be written while its slot is moving.
local function keep_state(cell, text, mark, ttl)
  if not mark then return keep_string(cell.key, text, ttl) end
  local member = 'debt ' .. text
  if cell.replaces == true then redis.call('DEL', cell.key) end
  redis.call('ZADD', cell.key, string.format('%d', mark), member)
  if cell.replaces and cell.replaces ~= true and cell.replaces ~= member then
    redis.call('ZREM', cell.key, cell.replaces)
  end
  keep_for(cell.key, ttl)
end

-- Returns true if a cell that is about to be marked has to remove its key while the slot is moving.
local function loses_key(cell)
  if not cell.is_dirty or not cell.mark or cell.replaces ~= true then return false end
  return type(redis.pcall('GET', cell.key .. '?')) == 'table'
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
