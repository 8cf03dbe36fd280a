-- ARGV: the marker, the command, and
--   propose, adopt: the stamp of the configuration to replace (or nothing), the new one, its stamp
--   activate: the stamp, for how many microseconds to wait
--   begin: the episode, the stamp, for how many microseconds to wait, 1 when by time, the floor of 16 digits
--   waited: the episode, how many microseconds were left, how many have passed since
--   vouch: the episode
--   readmit: the id, the one that the node takes
local node, other = load()
if other then return { 'foreign', other } end

local function wait(micros, by_time)
  node.r, node.t = format('%.0f', micros), by_time
end

local function is_episode(episode)
  return node.g == 'forgot' and node.i == episode and has(node.c, episode)
end

-- Returns since which epoch the node is a member. A node that was given its slot a second time is one
-- since a later epoch.
local function member_since(configuration)
  local _, _, since = find(configuration or '', ' ' .. node.i .. '/(%d+)@')
  return since
end

-- Shortens the quarantine, if more was left. The node votes when nothing is left.
local function shorten(episode, rest)
  if not node.r or not is_episode(episode) then return false end
  if rest > 0 then
    if rest >= tonumber(node.r) then return false end
    node.r = format('%.0f', rest)
    return true
  end
  if node.t == '1' then raise_by_time(node) end
  node.g, node.r, node.t, node.w = 'open', nil, nil, nil
  return true
end

local commands = {}

function commands.propose(from, configuration, set_stamp)
  local first = node.g == 'blank' or node.g == 'proposed'
  if not first or (node.s or '') ~= from or not has(configuration, node.i) then return false end
  node.g, node.c, node.s = 'proposed', configuration, set_stamp
  return true
end

function commands.activate(set_stamp, quarantine)
  if node.g ~= 'proposed' or node.s ~= set_stamp then return false end
  wait(quarantine, '1')
  node.g = 'forgot'
  return true
end

-- Returns whether a stamp is a later one of the same set.
local function is_later(mine, set_stamp)
  local _, _, set, epoch = find(mine, '^(%x+)%.(%d+)%.')
  local _, _, other, next_epoch = find(set_stamp, '^(%x+)%.(%d+)%.')
  return set == other and tonumber(epoch) < tonumber(next_epoch)
end

function commands.adopt(from, configuration, set_stamp)
  if (node.s or '') ~= from or (node.s and not is_later(node.s, set_stamp)) then return false end
  local before = member_since(node.c)
  if node.g == 'blank' then
    node.g = 'forgot'
  elseif before and before ~= member_since(configuration) then
    -- Its tenure is over: nothing of it is kept.
    node.g, node.r, node.t, node.w = 'out', nil, nil, nil
  end
  node.c, node.s = configuration, set_stamp
  return true
end

function commands.begin(episode, set_stamp, quarantine, by_time, floor)
  if node.r or node.s ~= set_stamp or not is_episode(episode) then return false end
  wait(quarantine, by_time)
  raise(node, floor)
  return true
end

function commands.waited(episode, left, passed)
  return shorten(episode, math.max(left - passed, 0))
end

function commands.vouch(episode)
  return node.t == '1' and shorten(episode, 0)
end

function commands.readmit(id, fresh)
  if node.g ~= 'out' or node.i ~= id then return false end
  node.i, node.g = fresh, 'forgot'
  return true
end

if node.m ~= ARGV[1] or not commands[ARGV[2]](unpack(ARGV, 3)) then return 0 end
store(node)
return 1
