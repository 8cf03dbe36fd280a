-- The state of a node in its set, as a table. The definition is `node` in the core.
local NAMES = { 'm', 'i', 'w', 'g', 'c', 's', 'r', 't', 'l', 'f', 'p', 'b', 'o' }
local ZERO, NOBODY = string.rep('0', 16), string.rep('0', 32)
local STATES = { blank = true, proposed = true, open = true, forgot = true, out = true }

local since = stamp(call('TIME'))
local now = tonumber(since)

local function is_id(text) return text and #text == 32 and not find(text, '[^0-9a-f]') end

local function fits(node)
  return is_id(node.i) and (not node.w or is_id(node.w)) and STATES[node.g]
    and (node.g == 'blank') == (node.c == nil) and (node.c == nil) == (node.s == nil)
    and (not node.s or find(node.s, '^%x+%.%d+%.%x+$'))
    and (not node.r or #node.r < 11 and not find(node.r, '%D')) and is_token(node.l) and is_token(node.f)
end

local loaded

-- Returns the state of the node; and a description of any other value.
local function load()
  local node, kept = {}, redis.pcall('HMGET', NODE, unpack(NAMES))
  loaded = kept
  if is_mistyped(kept) then return nil, describe(NODE) .. ' in place of the state of the node' end
  for at, name in ipairs(NAMES) do node[name] = kept[at] or nil end
  -- Before the first handshake there can be a raised fence only.
  local raised = not node.m and call('HLEN', NODE) == (node.l and 1 or 0) + (node.f and 1 or 0)
  if raised then
    node.i, node.g, node.l, node.f = NOBODY, 'blank', node.l or ZERO, node.f or ZERO
  end
  if (not node.m and not raised) or not fits(node) then
    return nil, 'a hash that is not the state of a node'
  end
  return node
end

local function proof_of(node)
  return node.g == 'open' and node.m .. '/' .. node.s or nil
end

local function store(node)
  local set, gone = {}, {}
  node.p = proof_of(node)
  for _, name in ipairs(NAMES) do
    if node[name] then
      set[#set + 1], set[#set + 2] = name, node[name]
    else
      gone[#gone + 1] = name
    end
  end
  call('HSET', NODE, unpack(set))
  if #gone > 0 then call('HDEL', NODE, unpack(gone)) end
end

-- Returns whether the state differs from the loaded state.
local function is_another(node)
  node.p = proof_of(node)
  for at, name in ipairs(NAMES) do
    if node[name] ~= (loaded[at] or nil) then return true end
  end
  return false
end

local function has(configuration, id)
  return configuration and find(configuration, ' ' .. id .. '/', 1, true)
end

local function raise(node, token)
  node.l, node.f = later(node.l, token), later(node.f, token)
end

-- Raises the floor above every token given by now. A token may be ahead of the clock of its node by SKEW.
local function raise_by_time(node) raise(node, format('%016.0f', now + SKEW)) end
