-- ARGV: the marker, the id that the node takes if it has lost its data, of which master the server was a
--       replica in this run and until when (or nothing), and `l` to change nothing.
local node, other = load()
if other then return { 'foreign', other } end
local accepted = 1
local same_run = node.m == ARGV[1]
local was_replica = ARGV[3] ~= '' and ARGV[3] ~= (node.o or '')
if same_run and not was_replica then
  -- Nothing has happened to it.
elseif node.b == ARGV[1] and not was_replica then
  accepted = 0
else
  if was_replica then node.o = ARGV[3] end
  local is_member = has(node.c, node.i)
  if not same_run then
    if node.g ~= 'blank' then node.b = node.m end
    node.m = ARGV[1]
  end
  if node.g ~= 'blank' and node.g ~= 'out' then
    if is_member then node.w = node.i end
    node.g, node.r, node.t = 'forgot', nil, nil
  end
  node.i = ARGV[2]
end
if accepted == 1 and ARGV[4] ~= 'l' and is_another(node) then store(node) end
return { 'greeted', accepted, since, node.i, node.w or false, node.g, node.c or false,
  node.s or false, node.r or false, node.t or false, node.l }
