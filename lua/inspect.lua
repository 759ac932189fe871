-- inspect: what a lock looks like now. Reads only.
-- KEYS  lock queue fence
-- Reply {now, value or '', ttl left, waiters not counting a marked one, last token or '', 1 there is a value or 0}
local time = redis.call('TIME')
local value = redis.call('GET', KEYS[1])
return { time[1] * 1000000 + time[2], value or '', redis.call('PTTL', KEYS[1]),
  redis.call('ZCOUNT', KEYS[2], '(0', '+inf'), redis.call('GET', KEYS[3]) or '', value and 1 or 0 }
