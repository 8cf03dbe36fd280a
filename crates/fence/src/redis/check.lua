return holdline_refusal(KEYS[1], ARGV[1], '') or 'ok'
