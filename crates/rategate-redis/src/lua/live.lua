-- The world as it is: the store's own clock, and a store that forgets.

local function clock(_, at)
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2]), at
end

-- Whether a key's time is over although the store still has it: never.
local function is_over(_) return false end

local function keep_string(key, value, ttl_ms)
  redis.call('SET', key, value, 'PX', string.format('%d', ttl_ms))
end

local function keep_for(key, ttl_ms)
  redis.call('PEXPIRE', key, string.format('%d', ttl_ms))
end
