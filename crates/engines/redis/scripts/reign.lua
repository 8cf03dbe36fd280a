-- KEYS: what is kept of the masters. ARGV: the longest lease and the margin in ms, and `all` where
--       no grant counts that a replica lacks (else -); then, of who has measured how long a master
--       grants nothing: which run it was, how many ms were left, and how many have passed since.
-- Answers which run of a server this is, and for how many ms it grants nothing.
local key, longest, margin = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local function told(section, name)
  return string.match(redis.call('INFO', section), '\n' .. name .. ':(%w+)') or ''
end
-- A promotion leaves the replication id that the server followed before; nothing else does.
local run, followed = told('server', 'run_id'), told('replication', 'master_replid2')
local never = not string.find(followed, '[^0]')
local kept = redis.call('HMGET', key, 'm', 'f', 'l', 'q', 'w', 'r')
if kept[1] == run and never then followed = kept[2] or followed end
local promoted = not never and kept[2] ~= followed
local name = run .. '/' .. followed
-- Some clients count grants that a replica may lack.
local weak = kept[5] or ARGV[3] ~= 'all'
longest = math.max(longest, tonumber(kept[3] or '') or 0)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local left = math.ceil(longest * 1.01) + margin
if kept[1] == run and not promoted then
  local of, rest = string.match(kept[6] or '', '^(.*) (%d+)$')
  if kept[4] == '0' then
    left = 0
  elseif of == name then
    left = tonumber(rest)
  else
    -- A client of an earlier version began it: it wrote until when.
    left = math.min(left, math.max(0, (tonumber(kept[4] or '') or 0) - now))
  end
  if ARGV[4] == name then left = math.min(left, math.max(0, ARGV[5] - ARGV[6])) end
else
  if kept[1] and promoted and not weak then
    -- What a restart of it lost was lost before that.
    left = math.max(0, left - (tonumber(told('server', 'uptime_in_seconds')) or 0) * 1000)
  end
  redis.call('HSET', key, 'q', string.format('%.0f', now + left))
end
redis.call('HSET', key, 'm', run, 'f', followed, 'l', longest, 'r', string.format('%s %.0f', name, left))
if weak then redis.call('HSET', key, 'w', '1') end
return { name, left }
