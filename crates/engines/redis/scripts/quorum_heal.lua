-- ARGV: the proof, the record as another node has it, lease in ms.
local largest, floor = admitted(ARGV[1])
if not largest then return floor end
local value, other = holder(LOCK)
local last, odd = last_of(LOCK)
local mark, strange = mark_of(LOCK, sub(ARGV[2], 1, ID_END))
if other or odd or strange then return { 'foreign', other or odd or strange } end
if value or mark then return 0 end
call('SET', LOCK, ARGV[2], 'PX', ARGV[3])
call('SETRANGE', LOCK, AT_HAND_OFF, HEALED)
-- A lost counter starts above every token that was given for the name.
count(LOCK, later(later(sub(ARGV[2], 68, 83), last or largest), floor), largest)
return 1
