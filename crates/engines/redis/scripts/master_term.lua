-- KEYS: what is stored about the master term, and the counter if there is one. ARGV: the longest lease and the
--       margin in ms; `all` if no grant counts that a replica lacks (else -); the run of the server that the
--       client knew before, `new` if it knew none, and - if sentinels named the server; then, from a client that
--       has measured the quarantine: of which run it was, how many ms were left, and how many have passed since.
-- Returns the run of the server, and for how many ms it grants no lock; or that it is a replica.
local key, counter, longest, margin = KEYS[1], KEYS[2], tonumber(ARGV[1]), tonumber(ARGV[2])
local function info(section, name)
  return string.match(redis.call('INFO', section), '\n' .. name .. ':(%w+)') or ''
end
-- Only a promotion sets the second replication id: it is that of the former master.
local run, followed = info('server', 'run_id'), info('replication', 'master_replid2')
-- A replica that is writable would take what follows, and lose it.
if info('replication', 'role') == 'slave' then return { 'replica' } end
local never_promoted = not string.find(followed, '[^0]')
local stored = redis.call('HMGET', key, 'm', 'f', 'l', 'q', 'w', 'r')
local stored_run, stored_followed, stored_longest, stored_end, stored_weak, stored_rest = unpack(stored)
if stored_run == run and never_promoted then followed = stored_followed or followed end
local promoted = not never_promoted and stored_followed ~= followed
local name = run .. '/' .. followed
-- Some clients accept grants that a replica may lack.
local weak = stored_weak or ARGV[3] ~= 'all'
longest = math.max(longest, tonumber(stored_longest or '') or 0)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local left = math.ceil(longest * 1.01) + margin
-- A server whose address is fixed, and that nobody has used, grants at once. A replica would have copied the
-- term, and a client that knew another run shows that the term was lost.
local known = ARGV[4]
if not stored_run and never_promoted and (known == 'new' or string.sub(known, 1, #run) == run) then
  left = 0
elseif stored_run == run and not promoted then
  local of, rest = string.match(stored_rest or '', '^(.*) (%d+)$')
  if stored_end == '0' then
    left = 0
  elseif of == name then
    left = tonumber(rest)
  else
    -- A client of an earlier version began the quarantine: it stored the end.
    left = math.min(left, math.max(0, (tonumber(stored_end or '') or 0) - now))
  end
  if ARGV[5] == name then left = math.min(left, math.max(0, ARGV[6] - ARGV[7])) end
else
  if stored_run and promoted and not weak then
    -- Grants that a restart has lost were lost before that.
    left = math.max(0, left - (tonumber(info('server', 'uptime_in_seconds')) or 0) * 1000)
  end
  redis.call('HSET', key, 'q', string.format('%.0f', now + left))
  -- A release during the quarantine draws a token for the next in the queue. After a promotion it must be above
  -- those that this server has missed, which the clock of the former master has given. A restarted server has
  -- given its tokens by its own clock. There the counter must not be ahead of the clock: if the data is lost
  -- again, tokens come from the clock alone.
  local last = counter and redis.call('GET', counter)
  local passed = (now + left) * 1000
  if promoted and counter and (not last or (tonumber(last) or passed) < passed) then
    redis.call('SET', counter, string.format('%016.0f', passed))
  end
end
redis.call('HSET', key, 'm', run, 'f', followed, 'l', longest,
  'r', string.format('%s %.0f', name, left))
if weak then redis.call('HSET', key, 'w', '1') end
return { name, left }
