local kind = redis.call('TYPE', KEYS[2])['ok']
if kind ~= 'none' and kind ~= 'string' then return 'foreign value ' .. kind end
local refusal = holdline_refusal(KEYS[1], ARGV[1], ARGV[2])
if refusal then return refusal end
local before = redis.call('GET', KEYS[1])
holdline_fence(KEYS[1], ARGV[1], ARGV[2])
local done
if ARGV[3] == 'delete' then
    done = redis.pcall('DEL', KEYS[2])
elseif ARGV[3] == 'set' then
    done = redis.pcall('SET', KEYS[2], ARGV[4])
else
    done = redis.pcall('SET', KEYS[2], ARGV[4], 'PX', ARGV[3])
end
if type(done) == 'table' and done['err'] then
    -- This user may not write the data, or not so. Redis undoes nothing by itself; and who may not
    -- delete may let expire. A mark of 1 refuses nobody.
    if before then
        redis.call('SET', KEYS[1], before)
    else
        redis.call('SET', KEYS[1], '1', 'PX', 1)
    end
    return 'refused ' .. done['err']
end
return 'ok'
