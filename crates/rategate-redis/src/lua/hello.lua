-- The instant since which a store is known to have lost nothing. A marker names the run of the
-- server that it was written in, and that instant. A server that is new, was emptied, restarted or
-- took over has no marker, or one of another run.

-- The time the marker is kept without a hello, 30 days. Each hello renews it.
local MARKER_MS = 2592000000

function verbs.hello(keys, args, at)
  local now
  now, at = clock(args, at or 1)
  if not now or now < 0 or now > LAST_US then error('RATEGATE the clock is out of range') end
  local run, text = args[at], redis.call('GET', keys[1])
  local since
  if text and not is_over(keys[1]) then
    local kept, kept_us = string.match(text, '^(%S+) (%d+)$')
    if kept == run then since = tonumber(kept_us) end
  end
  -- After the clock went back nothing is known of the time between.
  if not since or since > now then since = now end
  keep_string(keys[1], string.format('%s %d', run, since), MARKER_MS)
  return { 1, now, 0, since }
end
