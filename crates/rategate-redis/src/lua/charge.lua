-- Charges and credits. One with an id counts once: the record of the id is a string beside the states
-- of its key, as that of a reservation is, in one of two forms:
--
--   "c <permits> <booked> <debt>"     charged
--   "b <permits> <back>"              credited

-- Returns the words of the record of a request that counts once; nil if it has none, and FOREIGN for
-- data of another kind. The status is 2, or 5 if the id is of another request.
local function made_before(call, key, letter, permits)
  local words = record_of(call, key)
  if not words or words == FOREIGN then return words end
  return words, words[1] == letter and tonumber(words[2]) == permits and 2 or 5
end

-- Charges each limit on its own. Returns the permits that all of them booked.
local function charge_all(ops, cells, now, args, at)
  local booked
  for index, op in ipairs(ops) do
    local from, cell = at + 4 * (index - 1), cells[index]
    local own = op.kind.charge(cell, op, now, tonumber(args[from + 1]), bound_of(op, args[from + 2]), args[from + 3] == '1')
    if own > 0 then cell.is_dirty = true end
    booked = math.min(booked or own, own)
  end
  return booked
end

-- Charges permits that were used already: each limit on its own, whether they fit or not.
-- Arguments of each, whose keys are that of the record, unless `keep_ms` is 0, and those of its
-- limits:
--
--   limits  keep_ms  (number of the limit, permits, bound, 1 if a debt is carried)...
--
-- The reply to each is 1, 2 for a repeated one, 3 for a key that holds data of another kind, or 5
-- for an id of another request; the wait of a request for the permits of these limits, as of a denial;
-- the permits booked, and the debt after a repeated one. Three numbers for each limit follow.
function verbs.charge(keys, args, at)
  local call
  call, at = begin(args, at or 1)
  local now, reply, key_at, count = call.now, { 1, call.now, 0 }, 1, #args
  while at <= count do
    local limits, keep_ms, words, status = tonumber(args[at]), tonumber(args[at + 1]), nil, nil
    local permits, record = tonumber(args[at + 3]), nil
    if keep_ms > 0 then
      record, key_at = keys[key_at], key_at + 1
      words, status = made_before(call, record, 'c', permits)
    end
    local ops, cells, is_foreign = cells_of(call, keys, key_at, args, at + 2, limits, 4)
    if is_foreign or words == FOREIGN then
      foreign(ops, reply)
      reply[#reply + 1], reply[#reply + 2] = 0, 0
    else
      local booked, debt = 0, 0
      if status == 2 then
        booked, debt = tonumber(words[3]), tonumber(words[4])
      elseif not status then
        status, booked = 1, charge_all(ops, cells, now, args, at + 2)
        if record then
          local owed = string.format('%d', debt_of_all(ops, cells, now))
          keep_record(call, record, keep_ms, { 'c', string.format('%d', permits), string.format('%d', booked), owed })
        end
      end
      local opens_us = opening_of(ops, cells, now, false)
      local place = #reply
      reply[place + 1], reply[place + 2], reply[place + 3], reply[place + 4] = status, wait_until(opens_us, cells, now), booked, debt
      tell_all(ops, cells, now, reply)
    end
    at, key_at = at + 2 + 4 * limits, key_at + limits
  end
  return finish_in_place(call, reply, 'debt')
end

-- Credits permits without a grant: to all limits of the call, each with its key, the minimum of
-- what each has out. Arguments:
--
--   keep_ms                           0, or there is a record, whose key comes first
--   permits                           those of the call, which may be more than any limit has
--
-- The reply is 1, 2 for a repeated one, 3 for a record that is data of another kind, or with a record
-- a limit that is, or 5 for an id of another request; and how many came back.
function verbs.give_back(keys, args, at)
  local call
  call, at = begin(args, at or 1)
  local keep_ms, permits, first, least, cells = tonumber(args[at]), tonumber(args[at + 1]), 0, nil, {}
  if keep_ms > 0 then
    first = 1
    local words, status = made_before(call, keys[1], 'b', permits)
    if words == FOREIGN then return { 1, call.now, 0, 3, 0 } end
    if words then return { 1, call.now, 0, status, status == 2 and tonumber(words[3]) or 0 } end
  end
  for index, op in ipairs(call.ops) do
    cells[index] = cell_of(call, keys[first + index], op)
    -- What is not known to have come back is not remembered as made.
    if cells[index] == FOREIGN and keep_ms > 0 then return { 1, call.now, 0, 3, 0 } end
    local owed = cells[index] == FOREIGN and 0 or op.kind.owed(cells[index], op, call.now)
    least = math.min(least or owed, owed)
  end
  for index, op in ipairs(call.ops) do
    if least > 0 then
      op.kind.credit(cells[index], op, call.now, least)
      cells[index].is_dirty = true
    end
  end
  if keep_ms > 0 then
    keep_record(call, keys[1], keep_ms, { 'b', string.format('%d', permits), string.format('%d', least) })
  end
  finish(call)
  return { 1, call.now, call.corrected, 1, least }
end
