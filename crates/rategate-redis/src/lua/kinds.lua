-- The interface of the kinds of limits. A kind has:
--
--   numbers            how many numbers follow its letter in the arguments, and what they are
--   read(key, op, now, call)          a cell: the state of a key, for the time of one call
--   opening(cell, op, now)            the first whole microsecond at which op.permits pass; false: never
--   room(cell, op, now)               how many permits would pass now, but op.permits at most
--   take(cell, op, now, permits, id)  records a grant
--   tell(cell, op, now)               three whole numbers: what remains follows from them, and a
--                                     refund after a grant needs them
--   back(cell, op, now, a, b, c)      how many of op.permits of such a grant can come back
--   undo(cell, op, now, permits, a)   takes so many of such a grant back
--   owed(cell, op, now)               how many of op.permits have been taken and not been earned again
--   credit(cell, op, now, permits)    takes so many back, of whatever grants
--   adopt(cell, op, now, call)        goes on under other numbers
--   write(cell, now)                  puts the cell where it came from
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
