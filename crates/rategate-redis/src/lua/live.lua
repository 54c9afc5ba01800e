-- The clock of production: the store's own, with the store's own expiry.

local function clock(_, at)
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2]), at
end

-- Returns true if a key has expired but is still in the store: never.
local function is_over(_) return false end

local function keep_string(key, value, ttl_ms)
  redis.call('SET', key, value, 'PX', string.format('%d', ttl_ms))
end

local function keep_for(key, ttl_ms)
  redis.call('PEXPIRE', key, string.format('%d', ttl_ms))
end
