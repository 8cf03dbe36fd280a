local kind = redis.call('TYPE', KEYS[2])['ok']
if kind ~= 'none' and kind ~= 'string' then return 'foreign value ' .. kind end
local refusal = holdline_fence(KEYS[1], ARGV[1], ARGV[2])
if refusal then return refusal end
if ARGV[3] == 'delete' then
    redis.call('DEL', KEYS[2])
elseif ARGV[3] == 'set' then
    redis.call('SET', KEYS[2], ARGV[4])
else
    redis.call('SET', KEYS[2], ARGV[4], 'PX', ARGV[3])
end
return 'ok'
