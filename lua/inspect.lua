-- inspect: what a lock looks like now. Reads only.
-- KEYS  lock queue fence
-- Reply {now, value or '', ttl left, waiters not counting a marked one, last token or '', 1 there is a value or 0}
local time = redis.call('TIME')
local value = redis.call('GET', KEYS[1])
local waiters = redis.call('ZCARD', KEYS[2])
local head = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
if head[1] and tonumber(head[2]) < 0 then waiters = waiters - 1 end
return { time[1] * 1000000 + time[2], value or '', redis.call('PTTL', KEYS[1]),
  waiters, (string.gsub(redis.call('GET', KEYS[3]) or '', '%+$', '')), value and 1 or 0 }
