-- ARGV: the marker, the command, and
--   propose, adopt: the stamp of the configuration to replace (or nothing), the new one, its stamp
--   activate: the stamp, for how many µs to wait first (or nothing)
--   begin: the episode, the stamp, for how many µs to wait, 1 when by time
--   waited: the episode, the stamp, how many µs were left, how many have passed since, 1 when by time
--   recover: the episode, the stamp, the floor of 16 digits
--   vouch: the episode, the stamp
--   readmit: the id, the one that the node takes
local node, other = load()
if other then return { 'foreign', other } end

local function wait(micros, by_time)
  node.r, node.t = format('%.0f', micros), by_time
end

local function is_episode(episode, set_stamp)
  return node.g == 'forgot' and node.i == episode and node.s == set_stamp
    and has(node.c, episode)
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
  node.r, node.t, node.g = nil, nil, 'open'
  if quarantine ~= '' then
    wait(quarantine, '1')
    node.g = 'forgot'
  end
  raise_by_time(node)
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
  if node.g == 'blank' then
    node.g = 'forgot'
  elseif (node.g == 'open' or node.g == 'proposed') and not has(configuration, node.i) then
    node.g = 'out'
  end
  node.c, node.s = configuration, set_stamp
  return true
end

function commands.vouch(episode, set_stamp)
  if not is_episode(episode, set_stamp) or not node.r or node.r == '0' or node.t ~= '1' then
    return false
  end
  node.r = '0'
  return true
end

function commands.readmit(id, fresh)
  if node.g ~= 'out' or node.i ~= id then return false end
  node.i, node.g, node.w, node.r, node.t = fresh, 'forgot', nil, nil, nil
  return true
end

function commands.begin(episode, set_stamp, quarantine, by_time)
  if not is_episode(episode, set_stamp) then return false end
  if node.r and (by_time ~= '1' or node.t == '1') then return false end
  wait(quarantine, by_time)
  return true
end

function commands.waited(episode, set_stamp, left, passed, by_time)
  local rest = math.max(left - passed, 0)
  local same = node.r and node.t == by_time and is_episode(episode, set_stamp)
  if not same or rest >= tonumber(node.r) then return false end
  node.r = format('%.0f', rest)
  return true
end

function commands.recover(episode, set_stamp, floor)
  if node.r ~= '0' or not is_episode(episode, set_stamp) then return false end
  raise(node, floor)
  if node.t == '1' then raise_by_time(node) end
  node.g, node.r, node.t, node.w = 'open', nil, nil, nil
  return true
end

if node.m ~= ARGV[1] or not commands[ARGV[2]](unpack(ARGV, 3)) then return 0 end
store(node)
return 1
