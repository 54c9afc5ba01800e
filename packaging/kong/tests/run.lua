-- The plugin in a Lua without Kong: `lua5.1 run.lua FOLDER_OF_THE_PLUGIN SERVER`. What Kong and nginx
-- give it is written out below; the service is the real one, asked by curl.

local folder, server = arg[1], arg[2]
package.path = folder .. "/?.lua;" .. package.path
local cjson = require "cjson.safe"

-- The calls that are to fail before the service hears them, and those whose answers get lost.
local lost = { before = 0, after = 0 }
-- Bodies of all calls.
local calls = {}

local function quoted(text)
  return "'" .. string.gsub(text, "'", "'\\''") .. "'"
end

package.preload["resty.http"] = function()
  return {
    new = function()
      return {
        set_timeout = function(_, ms) assert(ms > 0) end,
        request_uri = function(_, uri, options)
          calls[#calls + 1] = cjson.decode(options.body)
          if lost.before > 0 then
            lost.before = lost.before - 1
            return nil, "connection refused"
          end
          local line = "curl -s -m 20 -w '\\n%{http_code}' -X " .. options.method
          for name, value in pairs(options.headers) do
            line = line .. " -H " .. quoted(name .. ": " .. value)
          end
          local pipe = io.popen(line .. " -d " .. quoted(options.body) .. " " .. quoted(uri))
          local output = pipe:read("*a")
          pipe:close()
          local body, status = string.match(output, "^(.*)\n(%d+)$")
          status = tonumber(status)
          if not status or status == 0 then
            return nil, "connection refused"
          end
          if lost.after > 0 then
            lost.after = lost.after - 1
            return nil, "timeout"
          end
          return { status = status, body = body }
        end,
      }
    end,
  }
end

local typedefs = setmetatable({}, { __index = function(_, name)
  return setmetatable({ named = name }, { __call = function(own) return own end })
end })
package.preload["kong.db.schema.typedefs"] = function() return typedefs end

local plugin = require "kong.plugins.rategate.handler"
local schema = require "kong.plugins.rategate.schema"

local function config(changes)
  local conf = {}
  for _, field in ipairs(schema.fields[2].config.fields) do
    local name, rules = next(field)
    conf[name] = rules.default
  end
  conf.server, conf.tokens_rule, conf.requests_rule, conf.estimate = server, "calls/tokens", "calls/requests", 300
  for name, value in pairs(changes or {}) do
    conf[name] = value
  end
  return conf
end

-- One request through all phases. `answer` has a status, chunks and header fields. Returns what the
-- client gets: the status, the fields of a denial.
local nth = 0
local function request(conf, answer, before_log)
  nth = nth + 1
  local exit
  local errors, timers = {}, {}
  ngx = {
    var = { request_id = string.format("%024x%08x", os.time(), nth) },
    arg = {},
    timer = { at = function(delay, run, ...)
      assert(delay == 0)
      timers[#timers + 1] = { run, ... }
      return true
    end },
  }
  kong = {
    ctx = { plugin = {} },
    client = {
      get_consumer = function() return answer.consumer and { id = answer.consumer } end,
      get_forwarded_ip = function() return "192.0.2.1" end,
    },
    request = { get_header = function(name) return (answer.request or {})[name] end },
    response = {
      exit = function(status, body, headers) exit = { status = status, headers = headers or {} } end,
      get_status = function() return exit and exit.status or answer.status or 200 end,
      get_header = function(name) return (answer.headers or {})[name] end,
    },
    log = { err = function(...) errors[#errors + 1] = table.concat({ ... }) end },
  }
  plugin:access(conf)
  if not exit then
    for at, chunk in ipairs(answer.chunks or {}) do
      ngx.arg = { chunk, at == #answer.chunks }
      plugin:body_filter(conf)
      assert(ngx.arg[1] == chunk, "a chunk passes as it is")
    end
  end
  if before_log then
    before_log()
  end
  -- No connection is made while a request is logged.
  local before = #calls
  plugin:log(conf)
  assert(#calls == before)
  for _, timer in ipairs(timers) do
    timer[1](false, unpack(timer, 2))
  end
  return exit or { status = answer.status or 200, headers = {} }, errors
end

local function remaining(rule, key)
  local body = cjson.encode({ verb = "peek", rule = rule, key = key })
  local pipe = io.popen("curl -s -d " .. quoted(body) .. " " .. quoted(server .. "/v1/check"))
  local answer = cjson.decode(pipe:read("*a"))
  pipe:close()
  return answer.items[1].remaining
end

local function equal(left, right, what)
  if left ~= right then
    error(string.format("%s: %s and not %s", what, tostring(left), tostring(right)), 2)
  end
end

local tests = {}

function tests.what_was_used_is_counted()
  local conf = config()
  local body = '{"usage": {"prompt_tokens": 100, "total_tokens": 175}}'
  equal(request(conf, { consumer = "anna", chunks = { body } }).status, 200, "status")
  equal(remaining("calls/tokens", "anna"), 825, "tokens")
  equal(remaining("calls/requests", "anna"), 59, "requests")
end

function tests.a_stream_states_its_tokens_at_its_end()
  local chunks = {}
  for at = 1, 3000 do
    chunks[at] = 'data: {"choices": [{"delta": "' .. at .. '"}], "usage": {"total_tokens": ' .. at .. "}}\n\n"
  end
  -- A number may be cut anywhere.
  chunks[#chunks + 1] = 'data: {"usage": {"total_tok'
  chunks[#chunks + 1] = 'ens" : 4'
  chunks[#chunks + 1] = "20}}\n\ndata: [DONE]\n\n"
  request(config(), { consumer = "berta", chunks = chunks })
  equal(remaining("calls/tokens", "berta"), 580, "tokens")
end

function tests.a_header_field_states_the_tokens()
  local conf = config({ used_header = "X-Tokens" })
  request(conf, { consumer = "carla", chunks = { '"total_tokens": 7' }, headers = { ["X-Tokens"] = "40" } })
  equal(remaining("calls/tokens", "carla"), 960, "tokens")
  for at, nonsense in ipairs({ "-4", "4.5", "1e3", "", "none" }) do
    local key = "carla" .. at
    request(conf, { consumer = key, headers = { ["X-Tokens"] = nonsense } })
    equal(remaining("calls/tokens", key), 700, "the estimate counts for " .. nonsense)
  end
end

function tests.an_answer_without_a_number()
  request(config(), { consumer = "dora", chunks = { "hello" } })
  equal(remaining("calls/tokens", "dora"), 700, "the estimate counts")
  request(config(), { consumer = "emma", status = 502, chunks = { "hello" } })
  equal(remaining("calls/tokens", "emma"), 1000, "a failure gives all back")
  equal(remaining("calls/requests", "emma"), 60, "requests")
end

function tests.what_does_not_fit_is_denied_until_it_does()
  local conf = config({ estimate = 600 })
  request(conf, { consumer = "fritz", chunks = { '"total_tokens": 500' } })
  local answer, errors = request(conf, { consumer = "fritz", chunks = { '"total_tokens": 9' } })
  equal(answer.status, 429, "status")
  local wait = tonumber(answer.headers["Retry-After"])
  -- An hour, and the resolution of the rule.
  assert(wait >= 1 and wait <= 3604, tostring(wait))
  equal(#errors, 0, "errors")
  equal(remaining("calls/tokens", "fritz"), 500, "a denial takes nothing")
  -- More than ever fits: no wait helps.
  answer = request(config({ estimate = 5000 }), { consumer = "fritz" })
  equal(answer.status, 429, "status")
  equal(answer.headers["Retry-After"], nil, "wait")
end

function tests.more_than_the_estimate_is_charged()
  request(config({ estimate = 10 }), { consumer = "gerda", chunks = { '"total_tokens": 1600' } })
  local answer = request(config({ estimate = 1 }), { consumer = "gerda" })
  equal(answer.status, 429, "in debt")
end

function tests.keys()
  request(config({ key = "ip" }), { chunks = { '"total_tokens": 11' } })
  equal(remaining("calls/tokens", "192.0.2.1"), 989, "address")
  local conf = config({ key = "header:X-Team" })
  request(conf, { request = { ["X-Team"] = "a\"b'c" }, chunks = { '"total_tokens": 12' } })
  equal(remaining("calls/tokens", "a\"b'c"), 988, "header")
  request(config(), { chunks = { '"total_tokens": 13' } })
  equal(remaining("calls/tokens", ""), 987, "no consumer")
end

function tests.a_lost_answer_counts_once()
  for _, where in ipairs({ "before", "after" }) do
    local key = "lost " .. where
    local _, errors = request(config(), { consumer = key, chunks = { '"total_tokens": 100' } }, function()
      lost[where] = 2
    end)
    equal(#errors, 0, "errors")
    equal(remaining("calls/tokens", key), 900, where)
  end
  local _, errors = request(config(), { consumer = "hugo", chunks = { '"total_tokens": 1' } }, function()
    lost.before = 3
  end)
  equal(#errors, 1, "errors")
  equal(remaining("calls/tokens", "hugo"), 700, "it ends by itself")
end

function tests.a_service_that_does_not_answer()
  local gone = "http://127.0.0.1:1"
  local answer, errors = request(config({ server = gone }), { consumer = "ida" })
  equal(answer.status, 503, "closed")
  equal(#errors, 1, "errors")
  local before = #calls
  answer = request(config({ server = gone, fail_open = true }), { consumer = "ida", chunks = { "x" } })
  equal(answer.status, 200, "open")
  equal(#calls, before + 1, "nothing is settled that was not held")
end

function tests.a_service_that_was_restarted_is_told_what_was_used()
  for at, key in ipairs({ "jakob", "julia" }) do
    local _, errors = request(config(), { consumer = key, chunks = { '"total_tokens": 60' } }, function()
      -- An id that the service does not know, and an answer to the first commit that gets lost.
      kong.ctx.plugin.held.id = string.rep("a" .. at, 16)
      lost.after = 1
    end)
    equal(#errors, 0, "errors")
    equal(calls[#calls].verb, "charge", "verb")
    -- The estimate of the id that was known is held besides.
    equal(remaining("calls/tokens", key), 640, "tokens")
  end
end

function tests.a_refused_call_is_named()
  local answer, errors = request(config({ tokens_rule = "nowhere" }), { consumer = "karl" })
  equal(answer.status, 503, "status")
  assert(string.find(errors[1], "status 404", 1, true), errors[1])
end

local failed, names = 0, {}
for name in pairs(tests) do
  names[#names + 1] = name
end
table.sort(names)
for _, name in ipairs(names) do
  lost.before, lost.after = 0, 0
  local ok, why = pcall(tests[name])
  print((ok and "ok      " or "FAILED  ") .. name .. (ok and "" or ": " .. tostring(why)))
  failed = failed + (ok and 0 or 1)
end
print(#names .. " tests, " .. failed .. " failed")
os.exit(failed == 0 and 0 or 1)
