-- The most frequent calls by far, about one bucket alone, without the tables: a decision, the first
-- hold, and the end of the only one. The numbers are the same. Each returns nil for any other call,
-- which the general code then decides.

-- Reads the state of a bucket from its text, if it was written with these numbers and nothing was
-- refunded since.
local function gcra_plain(text, d, unit_us, unit_part, burst_us, burst_part)
  local us, part, of, of_us, of_part, of_burst_us, of_burst_part = string.match(text, '^(%d+)@(%d+)%*(%d+)$')
  if us then
    if d == '1' and part == unit_us and of == burst_us then return tonumber(us), 0 end
    return nil
  end
  us, part, of, of_us, of_part, of_burst_us, of_burst_part =
    string.match(text, '^(%d+)%+(%d+)/(%d+)@(%d+)%+(%d+)%*(%d+)%+(%d+)$')
  if of == d and of_us == unit_us and of_part == unit_part and of_burst_us == burst_us
    and of_burst_part == burst_part then return tonumber(us), tonumber(part) end
end

-- Makes one decision. Keys and arguments are those of `decide`.
local function gcra_alone(keys, args, at, now, writes)
  if #args ~= at + 17 or args[at + 4] ~= 'g' or args[at + 14] ~= '-' or args[at + 13] ~= '1'
    or not now or now < 0 or now > LAST_US then return nil end
  local key, d, burst_us = keys[1], tonumber(args[at + 5]), tonumber(args[at + 6])
  local text, us, part = redis.pcall('GET', key), now, 0
  if text and not is_over(key) then
    if type(text) ~= 'string' then return nil end
    us, part = gcra_plain(text, args[at + 5], args[at + 11], args[at + 12], args[at + 6], args[at + 7])
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
    local text = gcra_text(us, part, d, tonumber(args[at + 11]), tonumber(args[at + 12]), burst_us, tonumber(args[at + 7]))
    keep_string(key, text, ttl_ms(part > 0 and us + 1 or us, now))
  end
  return { 1, now, corrected, 1, tonumber(args[at + 8]), us, part, 0 }
end

-- Holds an estimate, the first. Keys and arguments are those of `reserve`.
local function reserve_alone(keys, args, at, now)
  if #args ~= at + 18 or args[at + 4] ~= 'g' or args[at + 17] ~= '0' or not now or now < 0 or now > LAST_US
    or redis.pcall('GET', keys[1]) then return nil end
  local key, d, burst_us = keys[2], tonumber(args[at + 5]), tonumber(args[at + 6])
  local text, us, part = redis.pcall('GET', key), now, 0
  if text then
    if type(text) ~= 'string' or is_over(key) then return nil end
    us, part = gcra_plain(text, args[at + 5], args[at + 11], args[at + 12], args[at + 6], args[at + 7])
    if not us or us > now + burst_us + tonumber(args[at + 2])
      or type(redis.pcall('GET', key .. '?')) == 'table' then return nil end
    if us < now then us, part = now, 0 end
  end
  local corrected = is_doubted(args[at], args[at + 1]) and -1 or 0
  local next_us, next_part = add(us, part, tonumber(args[at + 9]), tonumber(args[at + 10]), d)
  local opens_us, opens_part = sub(next_us, next_part, burst_us, tonumber(args[at + 7]), d)
  if opens_part > 0 then opens_us = opens_us + 1 end
  if opens_us > now then return { 1, now, corrected, 0, opens_us - now, us, part, 0 } end
  if text then redis.call('DEL', key) end
  local permits, id, lasts_us, keep_ms = args[at + 8], args[at + 14], tonumber(args[at + 15]), args[at + 16]
  local head = string.format('held 1 %d - 1:1:0:0:0 ', lasts_us)
    .. gcra_text(next_us, next_part, d, tonumber(args[at + 11]), tonumber(args[at + 12]), burst_us, tonumber(args[at + 7]))
  redis.call('ZADD', key, HEAD_FROM + now, head, HOLDS_FROM + now + lasts_us, permits .. ':1:' .. id)
  keep_for(key, ttl_ms(math.max(next_part > 0 and next_us + 1 or next_us, now + lasts_us), now))
  local record = string.format('r %s %s %d 1', permits, keep_ms, now + lasts_us)
  keep_string(keys[1], record, tonumber(keep_ms) + ttl_ms(now + lasts_us, now))
  return { 1, now, corrected, 1, lasts_us, next_us, next_part, 0 }
end

-- Ends the only hold in time, of which no more was used than is held. Keys and arguments are those
-- of `settle`.
local function settle_alone(keys, args, at, now)
  if #args ~= at + 19 or args[at + 4] ~= 'g' or not now or now < 0 or now > LAST_US then return nil end
  -- One that is withdrawn leaves no record.
  if args[at + 16] == '2' then return nil end
  local record, key, d = redis.pcall('GET', keys[1]), keys[2], tonumber(args[at + 5])
  if type(record) ~= 'string' or is_over(keys[1]) then return nil end
  local held, keep_ms, ticket = string.match(record, '^r (%d+) (%d+) %d+ (%d+)$')
  if not held then return nil end
  local found = redis.pcall('ZRANGEBYSCORE', key, '-inf', '+inf', 'WITHSCORES', 'LIMIT', '0', '2')
  if found[3] ~= held .. ':' .. ticket .. ':' .. args[at + 14] or tonumber(found[4]) - HOLDS_FROM <= now
    or tonumber(found[2]) - HEAD_FROM > now + tonumber(args[at + 2]) then return nil end
  -- Nothing was taken since.
  local text = string.match(found[1], '^held 1 %d+ %- 1:%d+:%d+:0:0 (.*)$')
  if not text then return nil end
  local us, part = gcra_plain(text, args[at + 5], args[at + 11], args[at + 12], args[at + 6], args[at + 7])
  local used, permits = tonumber(args[at + 15]), tonumber(held)
  if used < 0 then used = permits end
  if not us or used > permits then return nil end
  local back, unit_us, unit_part = permits - used, tonumber(args[at + 11]), tonumber(args[at + 12])
  if back > 0 then
    local peak_us, back_us, back_part = us + 1, times(unit_us, unit_part, back, d)
    us, part = sub(us, part, back_us, back_part, d)
    text = string.format('%d+%d/%d@%d+%d*%s+%s:%d:%d', us, part, d, unit_us, unit_part, args[at + 6], args[at + 7],
      back, peak_us)
    keep_string(key, text, ttl_ms(peak_us, now))
  else
    keep_string(key, text, ttl_ms(part > 0 and us + 1 or us, now))
  end
  local outcome = args[at + 16] == '1' and 4 or back == 0 and 3 or 1
  keep_string(keys[1], string.format('e %s %d %d 0 0', held, outcome, back), tonumber(keep_ms))
  if us < now then us, part = now, 0 end
  local corrected = is_doubted(args[at], args[at + 1]) and -1 or 0
  return { 1, now, corrected, 1, outcome, back, 0, 0, us, part, back }
end
