-- The clock of the tests: each call sets the time, which also decides when keys expire.

local debug_now_us

local function clock(args, at)
  debug_now_us = tonumber(args[at])
  return debug_now_us, at + 1
end

local function is_over(key)
  local over_us = redis.call('GET', key .. '@until')
  return over_us and tonumber(over_us) <= debug_now_us
end

local function keep_for(key, ttl_ms)
  redis.call('SET', key .. '@until', string.format('%d', debug_now_us + ttl_ms * 1000))
end

local function keep_string(key, value, ttl_ms)
  redis.call('SET', key, value)
  keep_for(key, ttl_ms)
end
