-- Reservations: estimates held under an id. The record of an id is a string beside the states of
-- its key, in one of these forms:
--
--   "r <permits> <keep_ms> <end_us> (ticket)..."     held; a ticket for each limit
--   "e <permits> <outcome> <three numbers>"          ended, and how
--   "w"                                              withdrawn: as none, for a millisecond
--
-- or that of another request, which `charge.lua` describes.
-- It is kept until a repeated call can no longer come.

local function record_of(call, key)
  local known = call.records[key]
  if known then return known.numbers[1] ~= 'w' and known.numbers or nil end
  local text = redis.pcall('GET', key)
  if type(text) == 'table' then return FOREIGN end
  if not text or is_over(key) then return nil end
  local words = {}
  for word in string.gmatch(text, '%S+') do words[#words + 1] = word end
  if words[1] == 'w' then return nil end
  return words
end

local function keep_record(call, key, keep_ms, words)
  call.records[key] = { numbers = words, keep_ms = keep_ms }
end

-- Reads the limits of a request, which come last in it, and their cells. Each has so many
-- arguments, of which the first is the number of the limit.
local function cells_of(call, keys, key_at, args, at, limits, width)
  local ops, cells, is_foreign = {}, {}, false
  for index = 1, limits do
    ops[index] = call.ops[tonumber(args[at + width * (index - 1)])]
    cells[index] = cell_of(call, keys[key_at + index - 1], ops[index])
    is_foreign = is_foreign or cells[index] == FOREIGN
  end
  return ops, cells, is_foreign
end

local function tell_all(ops, cells, now, reply)
  for index, op in ipairs(ops) do
    local a, b, c = op.kind.tell(cells[index], op, now)
    local at = #reply
    reply[at + 1], reply[at + 2], reply[at + 3] = a, b, c
  end
end

-- Returns the bound of a charge. That of a calendar may differ in the three windows that come with a
-- call: "before:around:after".
local function bound_of(op, text)
  local bound = tonumber(text)
  if bound then return bound end
  local bounds = { string.match(text, '^(%d+):(%d+):(%d+)$') }
  return tonumber(bounds[op.nth])
end

-- Returns by how many permits any limit is exceeded.
local function debt_of_all(ops, cells, now)
  local debt = 0
  for index, op in ipairs(ops) do debt = math.max(debt, op.kind.debt(cells[index], op, now)) end
  return debt
end

-- Writes what has changed, unless a key would have to make room for its replacement while its slot
-- moves.
local function finish_in_place(call, reply, name)
  reply[3] = call.is_doubted and -1 - call.corrected or call.corrected
  for _, cell in ipairs(call.order) do
    if loses_key(cell) then return redis.error_reply('TRYAGAIN the slot of a ' .. name .. ' is moving') end
  end
  finish(call)
  return reply
end

local function hold_name(permits, ticket, id)
  return string.format('%d:%d:', permits, ticket) .. id
end

-- Returns when a state that has as many holds as it may have has one less.
local function full_until(cell, now)
  local open = cell.open
  if not open or open.count < MOST_HELD_AT_ONCE then return now end
  return next_end(cell)
end

-- Takes the estimate under each limit, and returns the words of its record.
local function hold_all(ops, cells, now, id, ttl_us, keep_ms)
  local permits, end_us = ops[1].permits, now + ttl_us
  local words = { 'r', string.format('%d', permits), string.format('%d', keep_ms), string.format('%d', end_us) }
  for index, op in ipairs(ops) do
    local cell = cells[index]
    local ticket = 0
    if op.kind.hold then
      op.kind.hold(cell, hold_name(permits, ticket, id), permits, end_us)
    else
      op.kind.take(cell, op, now, permits)
      cell.open = cell.open or new_holds()
      -- What the leads know is of holds that have ended.
      if cell.open.count == 0 then cell.leads = nil end
      ticket = op.kind.ticket(cell)
      add_hold(cell, hold_name(permits, ticket, id), end_us)
    end
    words[#words + 1] = string.format('%d', ticket)
    cell.is_dirty = true
  end
  return words
end

-- Returns the status of a known id, and a number: 2 and the time until its end, 4 after that, or 5
-- and its number of permits, if it is of another.
local function reserve_again(words, ops, cells, now, id)
  local permits, is_other = tonumber(words[2]), words[1] ~= 'r' and words[1] ~= 'e'
  if is_other or permits ~= ops[1].permits then return 5, permits end
  if words[1] ~= 'r' then return 4, 0 end
  local end_us = words[5] and end_of(cells[1], hold_name(permits, tonumber(words[5]), id)) or tonumber(words[4])
  if end_us <= now then return 4, 0 end
  return 2, end_us - now
end

-- Holds estimates. Arguments of each, whose keys are that of the record and those of its limits:
--
--   limits  id  ttl_us  keep_ms  1 if permits are spared  (number of the limit)...
--   (number of the limit with the spared permits)... if any are
--
-- The reply to each is 1 and the time until the end, or 0 and the wait; those of a known id; or 3 and
-- 0 for a key that holds data of another kind. Three numbers for each limit follow.
function verbs.reserve(keys, args, at)
  local now
  now, at = clock(args, at or 1)
  local alone = reserve_alone(keys, args, at, now)
  if alone then return alone end
  local call
  call, at = begin(args, at, now)
  local reply, key_at, count = { 1, now, 0 }, 1, #args
  while at <= count do
    local limits, id, ttl_us, keep_ms = tonumber(args[at]), args[at + 1], tonumber(args[at + 2]), tonumber(args[at + 3])
    local is_sparing = args[at + 4] == '1'
    local record = keys[key_at]
    local words = record_of(call, record)
    local ops, cells, is_foreign = cells_of(call, keys, key_at + 1, args, at + 5, limits, 1)
    if is_foreign or words == FOREIGN then
      foreign(ops, reply)
    else
      local status, number
      if words then
        status, number = reserve_again(words, ops, cells, now, id)
      else
        local judged = ops
        if is_sparing then
          judged = {}
          for index = 1, limits do judged[index] = call.ops[tonumber(args[at + 4 + limits + index])] end
        end
        local opens_us = opening_of(judged, cells, now, false)
        for _, cell in ipairs(cells) do opens_us = opens_us and math.max(opens_us, full_until(cell, now)) end
        status, number = 0, wait_until(opens_us, cells, now)
        if opens_us == now then
          status, number = 1, ttl_us
          keep_record(call, record, keep_ms + ttl_ms(now + ttl_us, now), hold_all(ops, cells, now, id, ttl_us, keep_ms))
        end
      end
      reply[#reply + 1], reply[#reply + 2] = status, number
      tell_all(ops, cells, now, reply)
    end
    at, key_at = at + 5 + (is_sparing and 2 or 1) * limits, key_at + 1 + limits
  end
  return finish_in_place(call, reply, 'hold')
end

-- Settles what each limit holds with the permits that were used. Returns the outcome: 1 and how
-- many came back, 2 and how many of a shortfall were booked and forgiven, 3 for neither, 4 and how
-- many came back of a cancelled one; or 5, what was booked and forgiven of a late one, and the debt.
local function settle_all(words, ops, cells, now, id, used, is_cancelled, terms)
  local permits = tonumber(words[2])
  if used < 0 then used = permits end
  local back, forgiven, is_late, counts_use = math.max(0, permits - used), 0, false, false
  for index, op in ipairs(ops) do
    local cell, bound, is_carried = cells[index], terms[index][1], terms[index][2]
    local ticket = words[4 + index]
    local member = ticket and hold_name(permits, tonumber(ticket), id)
    local is_open = member and end_of(cell, member)
    local short = used
    if is_open then
      -- Permits in flight come back whole.
      if op.kind.unhold then
        op.kind.unhold(cell, member, permits)
      else
        back = math.min(back, end_hold(cell, op, member, math.max(0, permits - used), now))
      end
      short = math.max(0, used - permits)
      cell.is_dirty = true
    else
      is_late = true
    end
    counts_use = counts_use or op.kind.charge ~= nil
    if short > 0 and op.kind.charge then
      local counted = op.kind.charge(cell, op, now, short, bound, is_carried)
      if counted > 0 then cell.is_dirty = true end
      forgiven = math.max(forgiven, short - counted)
    end
  end
  if not counts_use then used = is_late and 0 or math.min(used, permits) end
  if is_late then
    return { 5, math.max(0, used - forgiven), forgiven, debt_of_all(ops, cells, now) }
  end
  if is_cancelled then return { 4, back, 0, 0 } end
  if used > permits then return { 2, math.max(0, used - permits - forgiven), forgiven, 0 } end
  if used == permits then return { 3, 0, 0, 0 } end
  return { 1, back, 0, 0 }
end

-- Ends reservations. Arguments of each, whose keys are that of the record and those of its limits:
--
--   limits  id  used (-1: all)  1 if cancelled, 2 if withdrawn  (number of the limit, bound, 1 if a debt is carried)...
--
-- The reply to each is 1, 2 for a repeated call, 0 for an unknown id, or 3 for a key that holds
-- data of another kind; and the four numbers of the outcome. Three numbers for each limit follow.
function verbs.settle(keys, args, at)
  local now
  now, at = clock(args, at or 1)
  local alone = settle_alone(keys, args, at, now)
  if alone then return alone end
  local call
  call, at = begin(args, at, now)
  call.expects_holds = true
  local reply, key_at, count = { 1, now, 0 }, 1, #args
  while at <= count do
    local limits, id, used = tonumber(args[at]), args[at + 1], tonumber(args[at + 2])
    local record = keys[key_at]
    local words = record_of(call, record)
    local ops, cells, is_foreign = cells_of(call, keys, key_at + 1, args, at + 4, limits, 3)
    if is_foreign or words == FOREIGN then
      reply[#reply + 1] = 3
      for _ = 1, 4 + 3 * limits do reply[#reply + 1] = 0 end
    else
      local status, outcome = 0, { 0, 0, 0, 0 }
      if words and words[1] == 'r' then
        local terms = {}
        for index = 1, limits do
          local from = at + 4 + 3 * (index - 1)
          terms[index] = { bound_of(ops[index], args[from + 1]), args[from + 2] == '1' }
        end
        status, outcome = 1, settle_all(words, ops, cells, now, id, used, args[at + 3] ~= '0', terms)
        local ended = { 'e', words[2] }
        for _, number in ipairs(outcome) do ended[#ended + 1] = string.format('%d', number) end
        if args[at + 3] == '2' then
          -- In place of the other, since a key that is gone cannot be written while its slot moves.
          keep_record(call, record, 1, { 'w' })
        else
          keep_record(call, record, tonumber(words[3]), ended)
        end
      elseif words and words[1] == 'e' then
        status, outcome = 2, { tonumber(words[3]), tonumber(words[4]), tonumber(words[5]), tonumber(words[6]) }
      end
      reply[#reply + 1] = status
      for _, number in ipairs(outcome) do reply[#reply + 1] = number end
      tell_all(ops, cells, now, reply)
    end
    at, key_at = at + 4 + 3 * limits, key_at + 1 + limits
  end
  return finish_in_place(call, reply, 'hold')
end
