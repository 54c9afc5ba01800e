-- Token budgets before an upstream: an estimate is held when a request comes, and what was used is
-- counted when its answer has gone. docs/guides/kong.md explains it.
--
-- * Each operation has the request's own id, so it counts once, however often it is sent.
-- * An answer without a number of tokens: a failed one gives all back, any other keeps the estimate.
-- * What is never settled ends by itself after `ttl`.

local cjson = require "cjson.safe"
local http = require "resty.http"

-- As much of an answer's end is kept to find the number of tokens in it: streams end with it.
local TAIL_BYTES = 8192
-- Settling is tried so often, in all.
local ATTEMPTS = 3
-- Numbers up to here are exact in Lua and in JSON.
local MAX_PERMITS = 2 ^ 53

local Rategate = {
  -- After the plugins that know the consumer, and before those that change the request.
  PRIORITY = 901,
  VERSION = "0.1.0",
}

local function call(conf, body)
  local client = http.new()
  client:set_timeout(conf.timeout_ms)
  local headers = { ["Content-Type"] = "application/json" }
  if conf.token then
    headers["Authorization"] = "Bearer " .. conf.token
  end
  local answer, failure = client:request_uri(conf.server .. "/v1/check", {
    method = "POST",
    body = cjson.encode(body),
    headers = headers,
  })
  if not answer then
    return nil, failure
  end
  if answer.status ~= 200 then
    return nil, "status " .. answer.status .. ": " .. tostring(answer.body)
  end
  local decoded = cjson.decode(answer.body)
  if type(decoded) ~= "table" or type(decoded.items) ~= "table" then
    return nil, "the answer is no JSON of the service"
  end
  return decoded
end

local function key_of(conf)
  if conf.key == "ip" then
    return kong.client.get_forwarded_ip()
  end
  local header = string.match(conf.key, "^header:(.+)$")
  if header then
    return kong.request.get_header(header) or ""
  end
  local consumer = kong.client.get_consumer()
  return consumer and consumer.id or ""
end

-- The items of a reservation, always in this order. Without `permits` a commit takes what is held.
local function items(conf, key, permits)
  local all = { { rule = conf.tokens_rule, key = key, permits = permits } }
  if conf.requests_rule then
    all[2] = { rule = conf.requests_rule, key = key }
  end
  return all
end

local function deny(answer)
  local wait_ms = 0
  for _, item in ipairs(answer.items) do
    if not item.allowed then
      -- No wait helps an item without a time.
      local item_ms = type(item.retry_after_ms) == "number" and item.retry_after_ms
      wait_ms = item_ms and wait_ms and math.max(wait_ms, item_ms)
    end
  end
  local headers = {}
  if wait_ms then
    headers["Retry-After"] = tostring(math.max(1, math.ceil(wait_ms / 1000)))
  end
  return kong.response.exit(429, { message = "Too many requests" }, headers)
end

function Rategate:access(conf)
  local id, key = ngx.var.request_id, key_of(conf)
  local answer, failure = call(conf, {
    verb = "reserve",
    id = id,
    ttl = conf.ttl,
    items = items(conf, key, conf.estimate),
  })
  if not answer then
    kong.log.err("rategate cannot decide: ", failure)
    if conf.fail_open then
      return
    end
    return kong.response.exit(503, { message = "The rate limit is not known" })
  end
  if not answer.allowed then
    return deny(answer)
  end
  kong.ctx.plugin.held = { id = id, key = key, tail = "" }
end

-- Chunks pass as they come; only the end is kept.
function Rategate:body_filter(conf)
  local held, chunk = kong.ctx.plugin.held, ngx.arg[1]
  if held and not conf.used_header and type(chunk) == "string" and chunk ~= "" then
    held.tail = string.sub(held.tail .. chunk, -TAIL_BYTES)
  end
end

-- The number of tokens that the answer states, or nil.
local function used(conf, tail)
  local text
  if conf.used_header then
    text = kong.response.get_header(conf.used_header)
  else
    -- The last one: each event of a stream may state its own so far.
    for number in string.gmatch(tail, '"' .. conf.used_field .. '"%s*:%s*(%d+)') do
      text = number
    end
  end
  local number = text and string.match(text, "^%d+$") and tonumber(text)
  return number and math.min(number, MAX_PERMITS)
end

-- Connections cannot be made while a request is logged, but by a timer.
local function settle(premature, conf, held, verb, permits)
  if premature then
    -- The worker stops: the reservation ends by itself.
    return
  end
  local failure
  for _ = 1, ATTEMPTS do
    local answer
    answer, failure = call(conf, { verb = verb, id = held.id, items = items(conf, held.key, permits) })
    local verdict = answer and answer.items[1] and answer.items[1].verdict
    if verdict == "unknown" and verb == "commit" then
      -- The service has been restarted since: what was used is charged, once.
      verb = "charge"
      answer, failure = call(conf, {
        verb = verb,
        once = held.id,
        items = { { rule = conf.tokens_rule, key = held.key, permits = permits or conf.estimate } },
      })
    end
    if answer then
      return
    end
    verb = verb == "charge" and "commit" or verb
  end
  kong.log.err("rategate does not hear what was used: ", failure)
end

function Rategate:log(conf)
  local held = kong.ctx.plugin.held
  if not held then
    return
  end
  local permits = used(conf, held.tail)
  local is_failed = not permits and kong.response.get_status() >= 400
  local verb = is_failed and "cancel" or "commit"
  held.tail = nil
  local ok, failure = ngx.timer.at(0, settle, conf, held, verb, permits)
  if not ok then
    kong.log.err("rategate does not hear what was used: ", failure)
  end
end

return Rategate
