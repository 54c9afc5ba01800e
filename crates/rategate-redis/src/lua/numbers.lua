-- Numbers. Lua has doubles only, which hold every whole number up to 2^53. All sums here stay
-- below that. Permits are multiplied by doubling; all other products and quotients are of points
-- of a grid, which are whole. So nothing rounds.
--
-- A length or an instant is a pair: whole microseconds, and a part of one in units of 1/d us,
-- where part < d.

-- The last valid instant, in the year 2112: sums of three such lengths stay exact.
local LAST_US = 4503599627370496
-- The last instant that a TAT reaches: the last valid one and the maximum burst. A cost added to
-- it is still below 2^53.
local LAST_TAT_US = 6755399441055744

local function add(a_us, a_part, b_us, b_part, d)
  local us, part = a_us + b_us, a_part + b_part
  if part >= d then return us + 1, part - d end
  return us, part
end

local function sub(a_us, a_part, b_us, b_part, d)
  local us, part = a_us - b_us, a_part - b_part
  if part < 0 then return us - 1, part + d end
  return us, part
end

local function is_less(a_us, a_part, b_us, b_part)
  return a_us < b_us or (a_us == b_us and a_part < b_part)
end

-- Returns `count` units in sequence. The last doubling may be one too many, and is not used.
local function times(unit_us, unit_part, count, d)
  local us, part = 0, 0
  while count > 0 do
    if math.fmod(count, 2) == 1 then
      us, part = add(us, part, unit_us, unit_part, d)
      count = count - 1
    end
    count = count / 2
    unit_us, unit_part = add(unit_us, unit_part, unit_us, unit_part, d)
  end
  return us, part
end

-- Returns how many units fit in a length, up to `most`.
local function fits(us, part, unit_us, unit_part, most, d)
  if us < 0 then return 0 end
  local doubled, weight = {}, 1
  while weight <= most and not is_less(us, part, unit_us, unit_part) do
    doubled[#doubled + 1] = { unit_us, unit_part, weight }
    unit_us, unit_part = add(unit_us, unit_part, unit_us, unit_part, d)
    weight = weight * 2
  end
  local count = 0
  for at = #doubled, 1, -1 do
    local step = doubled[at]
    if not is_less(us, part, step[1], step[2]) then
      us, part = sub(us, part, step[1], step[2], d)
      count = count + step[3]
    end
  end
  return math.min(count, most)
end

-- Rounds up to the next whole multiple, and returns it as a count of steps.
local function steps_up(value, step)
  local into = math.fmod(value, step)
  if into > 0 then value = value - into + step end
  return value / step
end
