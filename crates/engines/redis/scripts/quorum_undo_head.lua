local call, sub, find, format = redis.call, string.sub, string.find, string.format
