return holdline_fence(KEYS[1], ARGV[1], ARGV[2]) or 'ok'
