-- A free lock without a mark of the lease id is taken at once.
if ARGV[4] == '-' and call('EXISTS', KEYS[2], KEYS[3]) == 0 then
  local since = stamp(call('TIME'))
  local token = draw(since)
  call('SET', KEYS[2], ARGV[1] .. ':' .. token .. ':' .. since .. ':' .. sub(ARGV[3], 1, 1)
    .. ARGV[3] .. ':' .. ARGV[5], 'PX', ARGV[2])
  return token
end
