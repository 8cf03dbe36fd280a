-- ARGV: the marker, the id that the node takes if it has lost its data, and `l` to change nothing.
local node, other = load()
if other then return { 'foreign', other } end
local accepted = 1
if not node.m or (node.m ~= ARGV[1] and node.g == 'blank') then
  node.m, node.i = ARGV[1], ARGV[2]
elseif node.m ~= ARGV[1] and node.b == ARGV[1] then
  accepted = 0
elseif node.m ~= ARGV[1] then
  if has(node.c, node.i) then node.w = node.i end
  node.b, node.m, node.i, node.g, node.r, node.t = node.m, ARGV[1], ARGV[2], 'forgot', nil, nil
end
if accepted == 1 and ARGV[3] ~= 'l' and is_another(node) then store(node) end
return { 'greeted', accepted, since, node.i, node.w or false, node.g, node.c or false,
  node.s or false, node.r or false, node.t or false, node.l }
