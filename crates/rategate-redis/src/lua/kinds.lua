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
--   ticket(cell)                      a whole number by which a hold just taken is known
--   give_back(cell, op, now, ticket, permits, is_over)
--                                     takes back permits of a hold; returns how many came back,
--                                     which matters unless its time is over
--   pass(cell, op, now)               moves the cell on to an instant; absent where none differs
--   debt(cell, op, now)               by how many permits the limit is exceeded
--   prepare(cell), complete(cell, op) around the ends of many holds; may be absent
--   hold(cell, member, permits, end_us), unhold(cell, member, permits), end_of(cell, member)
--                                     in place of ticket and give_back: what is held comes back
--                                     whole, and nothing is charged. Absent for most kinds
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
