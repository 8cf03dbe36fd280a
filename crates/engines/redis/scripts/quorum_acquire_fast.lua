-- ARGV: the pass; the record's places 1-67 as it is granted, its places from 100, lease in ms; the
--       proposed token of 16 digits, `w` to be told of a release, `k` when the lease id must be known,
--       and by how many µs a token may be ahead of this clock.
local id, token = sub(ARGV[2], 1, 32), sub(ARGV[5], 1, 16)
local node = redis.pcall('HMGET', NODE, 'p', 'l', 'f')
if node[1] == ARGV[1] then
  local counter = OWN .. LOCK .. ':1l'
  local kept, time = call('MGET', LOCK, counter, OWN .. LOCK .. ':1t:' .. id), call('TIME')
  local value, last, micros = kept[1], kept[2], time[2]
  if #micros < 6 then micros = sub('00000' .. micros, -6) end
  local since = time[1] .. micros
  if sub(ARGV[5], 17, 17) == 'k' then
    -- That is for the rules.
  elseif not value then
    -- A free name is granted at once, where the proposed token is above all that counts here and
    -- not too far ahead. All numbers have 16 digits, so that they compare as they are.
    local largest, floor = node[2], node[3]
    local base = last or largest
    if not kept[3] and largest and floor and #base == 16 and #largest == 16 and #floor == 16
      and base < token and floor < token and not find(base .. largest .. floor, '%D')
      and (token <= since or token - since <= sub(ARGV[5], 18) + 0)
      -- What is of another type was not shown, and is not overwritten.
      and call('SET', LOCK, ARGV[2] .. token .. since .. ARGV[3], 'NX', 'PX', ARGV[4]) then
      if (last and call('SET', counter, token, 'PX', '86400000'))
        or call('SET', counter, token, 'NX', 'PX', '86400000') then
        if largest < token then call('HSET', NODE, 'l', token) end
        return token
      end
      call('DEL', LOCK)
    end
  elseif not kept[3] and sub(value, 1, 32) ~= id and find(value, '^[ghr][-w][ld]', 33)
    and find(value, '^%d%d%d%d%dx [ld]%d+;', 100) then
    local left = call('PTTL', LOCK)
    if left > 0 then
      -- Whoever holds it must know at its release that somebody waits.
      if sub(ARGV[5], 17, 17) == 'w' and sub(value, 34, 34) == '-' then
        call('SETRANGE', LOCK, '33', 'w')
      end
      return { 'busy', since, sub(value, 1, 8) .. sub(value, 33), left }
    end
  end
end
