-- ARGV: the proof; the record's positions 1-67 as it is granted, its positions from 100, lease in ms; and
--       1-16 the proposed token   17 `w` to be notified of a release, `k` if the lease id must be known
--       18- by how many microseconds a token may be ahead of this clock.
local PROPOSED_END, FORM, AHEAD = 16, 17, 18
local id, token = sub(ARGV[2], 1, ID_END), sub(ARGV[5], 1, PROPOSED_END)
local node = redis.pcall('HMGET', NODE, 'p', 'l', 'f')
if node[1] == ARGV[1] then
  local counter = OWN .. LOCK .. ':1l'
  local kept, time = call('MGET', LOCK, counter, OWN .. LOCK .. ':1t:' .. id), call('TIME')
  local value, last, since = kept[1], kept[2], time[1] .. time[2]
  if #since < 16 then since = string.format('%010.0f%06.0f', time[1], time[2]) end
  if sub(ARGV[5], FORM, FORM) == 'k' then
    -- The rules handle this.
  elseif not value then
    -- A free name is granted at once if the proposed token is larger than all known ones and not too
    -- far ahead. All numbers have 16 digits, so that they compare as strings.
    local largest, floor = node[2], node[3]
    local base = last or largest
    if not kept[3] and largest and floor and #base == 16 and #largest == 16 and #floor == 16
      and base < token and floor < token and not find(base .. largest .. floor, '%D')
      and (token <= since or token - since <= sub(ARGV[5], AHEAD) + 0)
      -- `NX`: MGET returns nothing for a key of another type, which must not be overwritten.
      and call('SET', LOCK, ARGV[2] .. token .. since .. ARGV[3], 'NX', 'PX', ARGV[4]) then
      if (last and call('SET', counter, token, 'PX', '86400000'))
        or call('SET', counter, token, 'NX', 'PX', '86400000') then
        if largest < token then call('HSET', NODE, 'l', token) end
        return token
      end
      call('DEL', LOCK)
    end
  elseif not kept[3] and sub(value, 1, ID_END) ~= id and find(value, '^[gr][-w][ld]', STATE)
    and find(value, '^%d%d%d%d%dx [ld]%d+;', HAND_OFF) then
    local left = call('PTTL', LOCK)
    if left > 0 then
      -- At its release the holder must know that there are waiters.
      if sub(ARGV[5], FORM, FORM) == 'w' and sub(value, WAITS, WAITS) == '-' then
        call('SETRANGE', LOCK, AT_WAITS, 'w')
      end
      return { 'busy', since, sub(value, 1, SHORT_ID) .. sub(value, STATE), left }
    end
  end
end
