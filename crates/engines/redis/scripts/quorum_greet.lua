-- ARGV: the marker, the id that the node takes when it has lost its memory, and letters: `d` where the
--       server keeps all that it has answered, `l` to change nothing.
local node, other = load()
if other then return { 'foreign', other } end
local accepted, durable = 1, find(ARGV[3], 'd', 1, true) and '1' or nil
if not node.m or (node.m ~= ARGV[1] and node.g == 'blank') then
  node.m, node.i = ARGV[1], ARGV[2]
elseif node.m ~= ARGV[1] and durable and node.d then
  -- Another run of a server that kept everything.
  node.m = ARGV[1]
elseif node.m ~= ARGV[1] and node.q and tonumber(node.q) > now then
  accepted = 0
elseif node.m ~= ARGV[1] then
  if has(node.c, node.i) then node.w = node.i end
  node.m, node.i, node.g, node.q, node.t = ARGV[1], ARGV[2], 'forgot', nil, nil
end
if accepted == 1 and not find(ARGV[3], 'l', 1, true) then
  node.d = durable
  if is_another(node) then store(node) end
end
return { 'greeted', accepted, since, node.i, node.w or false, node.g, node.c or false,
  node.s or false, node.q or false, node.t or false, node.l }
