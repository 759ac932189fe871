-- inspect: what a lock looks like now. Reads only.
-- KEYS  lock queue fence
-- Reply {now, value or '', ttl left, waiters, last token or ''}
local time = redis.call('TIME')
return { time[1] * 1000000 + time[2], redis.call('GET', KEYS[1]) or '', redis.call('PTTL', KEYS[1]),
  redis.call('ZCARD', KEYS[2]), redis.call('GET', KEYS[3]) or '' }
