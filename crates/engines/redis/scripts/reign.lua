-- KEYS: what is kept of the masters. ARGV: the longest lease and the margin in ms, and `all` where
--       no grant counts that a replica lacks (else -).
-- Answers which run of a server this is, and for how many ms it grants nothing.
local key, longest, margin = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local function told(section, name)
  return string.match(redis.call('INFO', section), '\n' .. name .. ':(%w+)') or ''
end
-- A promotion leaves the replication id that the server followed before; nothing else does.
local run, followed = told('server', 'run_id'), told('replication', 'master_replid2')
local never = not string.find(followed, '[^0]')
local up = (tonumber(told('server', 'uptime_in_seconds')) or 0) * 1000
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local kept = redis.call('HMGET', key, 'm', 'f', 'l', 'q', 'w')
-- Some clients count grants that a replica may lack.
local weak = kept[5] or ARGV[3] ~= 'all'
longest = math.max(longest, tonumber(kept[3] or '') or 0)
local quarantine = math.ceil(longest * 1.01) + margin
-- What was lost by a restart was lost before it.
local since_start = math.max(0, quarantine - up)
local till = tonumber(kept[4] or '') or 0
if kept[1] == run and (kept[2] == followed or never) then
  if never then followed = kept[2] or followed end
elseif not kept[1] then
  till = now + (never and since_start or quarantine)
else
  till = now + (weak and quarantine or since_start)
end
redis.call('HSET', key, 'm', run, 'f', followed, 'l', longest, 'q', string.format('%.0f', till))
if weak then redis.call('HSET', key, 'w', '1') end
return { run .. '/' .. followed, math.max(0, till - now) }
