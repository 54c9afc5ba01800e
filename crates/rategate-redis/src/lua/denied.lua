-- A deny list in one sorted set: each client by the microsecond at which it is admitted again.
-- The empty name, which no client has, holds the version of the list, offset so far that no
-- client's end reaches it.

local VERSION_FROM = LAST_US

local function version_of(key)
  if is_over(key) then return 0 end
  local score = redis.call('ZSCORE', key, '')
  return score and tonumber(score) - VERSION_FROM or 0
end

local function put_score(key, score, name)
  redis.call('ZADD', key, string.format('%d', score), name)
end

-- Removes the entries beyond the maximum, those that end first, and returns their number.
local function trim(key, most)
  local surplus = redis.call('ZCARD', key) - 1 - most
  if surplus <= 0 then return 0 end
  redis.call('ZREMRANGEBYRANK', key, 0, surplus - 1)
  return surplus
end

-- Adds entries. Arguments:  mode  most  (name  left_us)...
-- Mode r replaces the list; mode e extends it, and of two ends for a client the later one counts.
-- Each change gives the list a new version: the current instant, or one more than the version
-- before.
function verbs.list(keys, args, at)
  local call
  call, at = begin(args, at or 1)
  local key, now, most = keys[1], call.now, tonumber(args[at + 1])
  local version = math.max(version_of(key) + 1, now)
  if version > LAST_US then error('RATEGATE the clock is out of range') end
  if args[at] == 'r' or is_over(key) then
    redis.call('DEL', key)
  else
    redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%d', now))
  end
  for place = at + 2, #args, 2 do
    local name, until_us = args[place], math.min(now + tonumber(args[place + 1]), LAST_US)
    local known = redis.call('ZSCORE', key, name)
    if not known or tonumber(known) < until_us then put_score(key, until_us, name) end
  end
  put_score(key, VERSION_FROM + version, '')
  local left_out = trim(key, most)
  local last = redis.call('ZREVRANGE', key, 1, 1, 'WITHSCORES')
  if last[2] then
    keep_for(key, math.ceil((tonumber(last[2]) - now) / 1000))
  else
    redis.call('DEL', key)
    version = 0
  end
  return { 1, now, 0, version, math.max(redis.call('ZCARD', key) - 1, 0), left_out }
end

-- Returns the list and the time left for each client, unless its version is the known one.
-- Arguments:
--
--   version
function verbs.denied(keys, args, at)
  local call
  call, at = begin(args, at or 1)
  local key, now = keys[1], call.now
  local version = version_of(key)
  local reply = { 1, now, 0, version }
  if version == tonumber(args[at]) then return reply end
  if version > 0 then
    local from, to = string.format('(%d', now), string.format('%d', LAST_US)
    local found = redis.call('ZRANGEBYSCORE', key, from, to, 'WITHSCORES')
    for place = 1, #found, 2 do
      reply[#reply + 1], reply[#reply + 2] = found[place], tonumber(found[place + 1]) - now
    end
  end
  return reply
end
