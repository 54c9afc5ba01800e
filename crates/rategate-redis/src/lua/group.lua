-- A total shared by members that join and leave. All of them together never hold more than the
-- total: a member whose share became smaller may not have received that reply, and counts as
-- holding the larger one until its time is over.
--
-- The state is one string of words: the newest instant seen, the permits given up and since when.
-- Then for each member, in the order of names, follow its deadline and, in steps, what it may
-- hold until when.
--
--   l0:now  (g<permits>:<since>)...  (m<name>:<late>  (s<permits>:<until>)...)...

-- Bounded, because a heartbeat visits every member.
local MOST_MEMBERS = 4096
-- The maximum number of steps, and of entries of permits given up; more are merged, to the safe
-- side.
local MOST_STEPS = 8

local function group_read(key)
  local group = { members = {}, given_up = {}, latest = 0 }
  local text = redis.call('GET', key)
  if not text or is_over(key) then return group end
  local member
  for mark, first, second in string.gmatch(text, '(%l)(%x+):(%d+)') do
    second = tonumber(second)
    if mark == 'l' then
      group.latest = second
    elseif mark == 'g' then
      group.given_up[#group.given_up + 1] = { tonumber(first), second }
    elseif mark == 'm' then
      member = { name = first, late = second, steps = {} }
      group.members[#group.members + 1] = member
    else
      member.steps[#member.steps + 1] = { tonumber(first), second }
    end
  end
  return group
end

-- Keeps the state until nothing of it matters, and until the clock has reached the newest instant
-- seen.
local function group_write(key, group, real, memory)
  local words, until_us = { string.format('l0:%d', group.latest) }, group.latest
  for _, part in ipairs(group.given_up) do
    words[#words + 1] = string.format('g%d:%d', part[1], part[2])
    until_us = math.max(until_us, part[2])
  end
  for _, member in ipairs(group.members) do
    words[#words + 1] = string.format('m%s:%d', member.name, member.late)
    for _, step in ipairs(member.steps) do
      words[#words + 1] = string.format('s%d:%d', step[1], step[2])
      until_us = math.max(until_us, step[2])
    end
  end
  keep_string(key, table.concat(words, ' '), ttl_ms(until_us + memory, real))
end

local function group_held(member)
  return member.steps[1] and member.steps[1][1] or 0
end

local function group_give_up(group, permits, since)
  if permits == 0 then return end
  local parts = group.given_up
  local last = parts[#parts]
  if #parts >= MOST_STEPS then
    last[1], last[2] = last[1] + permits, math.max(last[2], since)
  else
    parts[#parts + 1] = { permits, since }
  end
end

-- Ends holdings whose time is over, and drops permits given up longer ago than they matter.
local function group_end(group, now, memory)
  local members, parts = {}, {}
  for _, member in ipairs(group.members) do
    while member.steps[1] and member.steps[1][2] <= now do
      local over = table.remove(member.steps, 1)
      group_give_up(group, over[1] - group_held(member), over[2])
    end
    if member.steps[1] then members[#members + 1] = member end
  end
  for _, part in ipairs(group.given_up) do
    if math.max(0, now - part[2]) < memory then parts[#parts + 1] = part end
  end
  group.members, group.given_up = members, parts
end

-- Takes permits from the `free` ones that no member holds. Returns how many of them are fresh.
local function group_draw(group, permits, free)
  local stale, parts = 0, {}
  for _, part in ipairs(group.given_up) do stale = stale + part[1] end
  local fresh = math.min(permits, math.max(0, free - stale))
  local left = permits - fresh
  for _, part in ipairs(group.given_up) do
    local drawn = math.min(left, part[1])
    part[1], left = part[1] - drawn, left - drawn
    if part[1] > 0 then parts[#parts + 1] = part end
  end
  group.given_up = parts
  return fresh
end

-- Holds `permits` from now on, besides what the member may still hold without having received the
-- last reply.
local function group_hold(member, now, permits, length)
  local steps = member.steps
  local last = steps[#steps]
  local until_us = math.max(now + length, last and last[2] or 0)
  while steps[#steps] and steps[#steps][1] <= permits do steps[#steps] = nil end
  steps[#steps + 1] = { permits, until_us }
  if #steps > MOST_STEPS then
    local first = table.remove(steps, 1)
    steps[1][1] = first[1]
  end
  member.late = now + steps_up(length, 3) * 2
end

-- Returns the position of a member, and true if it exists.
local function group_place(group, name)
  for place, member in ipairs(group.members) do
    if member.name == name then return place, true end
    if member.name > name then return place, false end
  end
  return #group.members + 1, false
end

-- Renews the share of a member. Returns its size, how much of what was added is fresh, and in how
-- many microseconds it may grow (0: not by time).
local function group_share(group, place, now, total, at_least, length)
  local member, others, count = group.members[place], 0, #group.members
  for other, holder in ipairs(group.members) do
    if other ~= place then others = others + group_held(holder) end
  end
  local left = math.fmod(total, count)
  local part = (total - left) / count
  if place <= left then part = part + 1 end
  local room, held = math.max(0, total - others), group_held(member)
  local permits = math.max(math.min(part, room), math.min(at_least, held))
  local fresh = group_draw(group, math.max(0, permits - held), math.max(0, room - held))
  group_hold(member, now, permits, length)
  local changes
  for other, holder in ipairs(group.members) do
    local next_step = holder.steps[1]
    local is_falling = #holder.steps > 1 and permits < part
    if other ~= place and next_step and (is_falling or holder.late <= now) then
      changes = math.min(changes or next_step[2], next_step[2])
    end
  end
  return permits, fresh, changes and math.max(0, changes - now) or 0
end

-- Handles a heartbeat. Arguments:  marker  known  name  total  at_least  length_us  memory_us. A
-- length of 0 leaves the group. The reply has the share, how much of what was added is fresh, the
-- number of members, and in how many microseconds the share may grow (0: not by time).
function verbs.beat(keys, args, at)
  local real
  real, at = clock(args, at or 1)
  if not real or real < 0 or real > LAST_US then error('RATEGATE the clock is out of range') end
  local is_lost = is_doubted(args[at], args[at + 1])
  at = at + 2
  local name = args[at]
  local total, at_least, length, memory =
    tonumber(args[at + 1]), tonumber(args[at + 2]), tonumber(args[at + 3]), tonumber(args[at + 4])
  local group = group_read(keys[1])
  group.latest = math.max(group.latest, real)
  local now = group.latest
  group_end(group, now, memory)
  local place, is_there = group_place(group, name)
  local permits, fresh, changes = 0, 0, 0
  if length == 0 then
    if is_there then group_give_up(group, group_held(table.remove(group.members, place)), now) end
  elseif is_there or #group.members < MOST_MEMBERS then
    if not is_there then table.insert(group.members, place, { name = name, late = 0, steps = {} }) end
    permits, fresh, changes = group_share(group, place, now, total, at_least, length)
  end
  group_write(keys[1], group, real, memory)
  return { 1, real, is_lost and -1 or 0, permits, fresh, #group.members, changes }
end
