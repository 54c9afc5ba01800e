-- The lead of each hold of a token bucket: how far the bucket could move back if it ended. The
-- core's `ledger/leads.rs` has the proof. A gap lies behind the newest of some holds, named by
-- its serial number; it has a length, and the number of these holds that have not ended. Gaps are
-- read one by one, and written with their cell.
--
--   text of the leads   "<open>:<newest>:<made up>:<us>:<part> ", the last two the sum of all gaps
--   text of a gap       "<serial>:<us>:<part>:<holds>"

local function leads_text(leads)
  return string.format('%d:%d:%d:%d:%d ', leads.open, leads.newest, leads.made_up, leads.us, leads.part)
end

-- Returns empty leads, or those in front of a text, and the text behind them.
local function leads_parse(text)
  local leads = { open = 0, newest = 0, made_up = 0, us = 0, part = 0, gaps = {}, stored = {}, fresh = {} }
  if not text then return leads end
  local open, newest, made_up, us, part, rest = string.match(text, '^(%d+):(%d+):(%d+):(%d+):(%d+) (.*)$')
  if not open then return nil end
  leads.is_stored = true
  leads.open, leads.newest, leads.made_up = tonumber(open), tonumber(newest), tonumber(made_up)
  leads.us, leads.part = tonumber(us), tonumber(part)
  -- Each gap has a length.
  leads.has_gaps = leads.us + leads.part > 0
  return leads, rest
end

-- Returns the gap of a member of the set, unless it has been removed.
local function gap_seen(leads, member, score)
  local serial = tonumber(score) - PARTS_FROM
  if leads.gaps[serial] == nil then
    local us, part, holds = string.match(member, '^%d+:(%d+):(%d+):(%d+)$')
    leads.gaps[serial] = { tonumber(us), tonumber(part), tonumber(holds) }
    leads.stored[serial] = member
  end
  return serial, leads.gaps[serial]
end

-- Reads all gaps at once, for a call that ends many holds.
local function leads_load(cell)
  local leads = cell.leads
  if not leads or leads.order then return end
  local order = {}
  if leads.has_gaps then
    local found = members(cell.key, PARTS_FROM, '+inf')
    for at = 1, #found, 2 do order[#order + 1] = gap_seen(leads, found[at], found[at + 1]) end
  end
  for _, serial in ipairs(leads.fresh) do order[#order + 1] = serial end
  leads.order, leads.skips = order, { [1] = {}, [-1] = {} }
end

-- Returns the place of the first gap that is left, from a place on in a direction. What has been
-- passed over once is skipped the next time.
local function gap_left(leads, place, step)
  local order, skips, to = leads.order, leads.skips[step], place
  while order[to] and not leads.gaps[order[to]] do to = skips[to] or to + step end
  while place ~= to do
    local after = skips[place] or place + step
    skips[place], place = to, after
  end
  return to
end

-- Returns the place of the first serial number that is not below this one.
local function gap_place(order, serial)
  local low, high = 1, #order + 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if order[middle] < serial then low = middle + 1 else high = middle end
  end
  return low
end

-- Returns the first gap from a serial number on. Those not yet written come after all others.
local function gap_from(cell, serial)
  local leads, skip = cell.leads, 0
  if leads.order then
    local at = leads.order[gap_left(leads, gap_place(leads.order, serial), 1)]
    return at, at and leads.gaps[at]
  end
  while leads.has_gaps do
    local found = members(cell.key, PARTS_FROM + serial, '+inf', 1, skip)
    if not found[1] then break end
    local at, gap = gap_seen(leads, found[1], found[2])
    if gap then return at, gap end
    skip = skip + 1
  end
  for _, at in ipairs(leads.fresh) do
    if at >= serial and leads.gaps[at] then return at, leads.gaps[at] end
  end
end

-- Returns the last gap before a serial number, or of all.
local function gap_before(cell, serial)
  local leads, skip = cell.leads, 0
  if leads.order then
    local place = serial and gap_place(leads.order, serial) or #leads.order + 1
    local at = leads.order[gap_left(leads, place - 1, -1)]
    return at, at and leads.gaps[at]
  end
  for place = #leads.fresh, 1, -1 do
    local at = leads.fresh[place]
    if (not serial or at < serial) and leads.gaps[at] then return at, leads.gaps[at] end
  end
  local from = serial and PARTS_FROM + serial - 1 or '+inf'
  while leads.has_gaps do
    local found = redis.call('ZREVRANGEBYSCORE', cell.key, from, PARTS_FROM, 'WITHSCORES', 'LIMIT', skip, 1)
    if not found[1] then return nil end
    local at, gap = gap_seen(leads, found[1], found[2])
    if gap then return at, gap end
    skip = skip + 1
  end
end

local function gap_set(leads, serial, gap)
  if leads.gaps[serial] == nil and not leads.stored[serial] then
    leads.fresh[#leads.fresh + 1] = serial
    if leads.order then leads.order[#leads.order + 1] = serial end
  end
  leads.gaps[serial] = gap
end

-- Changes the sum of all gaps.
local function leads_add(leads, us, part, d)
  leads.us, leads.part = add(leads.us, leads.part, us, part, d)
end

local function leads_sub(leads, us, part, d)
  leads.us, leads.part = sub(leads.us, leads.part, us, part, d)
end

-- Follows a grant at an instant, before the bucket takes it; or a credit, at the instant now moved on
-- by its time: as a grant of no permits after which all terms fall alike.
local function leads_follow(cell, op, start_us, start_part)
  local leads, d = cell.leads, op.d
  if not leads then return end
  local last_us, last_part = sub(cell.tat_us, cell.tat_part, leads.us, leads.part, d)
  local holds = leads.open
  while not is_less(start_us, start_part, last_us, last_part) do
    local serial, gap = gap_before(cell)
    if not serial then
      leads.made_up, leads.open, leads.us, leads.part = leads.newest, 0, 0, 0
      return
    end
    gap_set(leads, serial, false)
    last_us, last_part = add(last_us, last_part, gap[1], gap[2], d)
    leads_sub(leads, gap[1], gap[2], d)
    holds = holds + gap[3]
  end
  if holds == 0 then return end
  local us, part = sub(last_us, last_part, start_us, start_part, d)
  leads_add(leads, us, part, d)
  local serial, gap = gap_before(cell)
  if serial and gap[3] == 0 then
    us, part = add(us, part, gap[1], gap[2], d)
    gap_set(leads, serial, false)
  end
  gap_set(leads, leads.newest, { us, part, holds })
  leads.open = 0
end

-- Shortens a gap, and those before it once it has closed. Returns what is left when all have.
local function gap_shrink(cell, serial, gap, us, part, d)
  local leads, holds = cell.leads, gap[3]
  gap_set(leads, serial, false)
  while not is_less(us, part, gap[1], gap[2]) do
    us, part = sub(us, part, gap[1], gap[2], d)
    leads_sub(leads, gap[1], gap[2], d)
    local before
    before, gap = gap_before(cell, serial)
    if not before then
      leads.made_up = serial
      return us, part
    end
    gap_set(leads, before, false)
    holds = holds + gap[3]
  end
  leads_sub(leads, us, part, d)
  us, part = sub(gap[1], gap[2], us, part, d)
  gap_set(leads, serial, { us, part, holds })
  return 0, 0
end

-- Ends a hold of which the time of some permits comes back. Returns how far the bucket moves.
local function leads_end(cell, serial, us, part, d)
  local leads = cell.leads
  if serial <= leads.made_up then return 0, 0 end
  local newest, gap = gap_from(cell, serial)
  if not newest then
    leads.open = math.max(0, leads.open - 1)
    return us, part
  end
  local left_us, left_part = gap_shrink(cell, newest, { gap[1], gap[2], math.max(0, gap[3] - 1) }, us, part, d)
  gap = leads.gaps[newest]
  if gap and gap[3] == 0 then
    local after, next_gap = gap_from(cell, newest + 1)
    if after then
      local sum_us, sum_part = add(gap[1], gap[2], next_gap[1], next_gap[2], d)
      gap_set(leads, after, { sum_us, sum_part, next_gap[3] })
      gap_set(leads, newest, false)
    end
  end
  return sub(us, part, left_us, left_part, d)
end

-- Follows permits that came back without a hold. The first gap shrinks, so that the leads are
-- small enough whichever grant it was.
local function leads_follow_return(cell, us, part, d)
  while cell.leads and us + part > 0 do
    local serial, gap = gap_from(cell, 0)
    if not serial then return end
    us, part = gap_shrink(cell, serial, gap, us, part, d)
  end
end

-- Adds the gaps that have changed to what is written, and the text of those before to what is
-- removed.
local function leads_write(cell, adds)
  local leads = cell.leads
  if not leads.is_stored and cell.open.is_stored then
    redis.call('ZREMRANGEBYSCORE', cell.key, PARTS_FROM, '+inf')
  end
  for serial, gap in pairs(leads.gaps) do
    local text = gap and string.format('%d:%d:%d:%d', serial, gap[1], gap[2], gap[3])
    local before = leads.stored[serial]
    if text ~= before then
      if text then adds[#adds + 1], adds[#adds + 2] = PARTS_FROM + serial, text end
      if before then cell.open.drops[#cell.open.drops + 1] = before end
    end
  end
end
