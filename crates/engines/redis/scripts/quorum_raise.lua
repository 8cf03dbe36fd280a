-- ARGV: the largest token that may have been given, 16 digits.
local node, other = load()
if other then return { 'foreign', other } end
raise(node, ARGV[1])
call('HSET', NODE, 'l', node.l, 'f', node.f)
return 'done'
