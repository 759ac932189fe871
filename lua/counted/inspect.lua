-- inspect: returns the state of a lock. Reads only, so the reply can contain holders that have expired.
-- KEYS  lock entry queue fence
-- ARGV  how many waiters to list, the request number
-- Reply {now, state ('' if there is none, '?' if it is foreign), {fields of the lock ...}, number of waiters, fence or '',
--        entry of the first waiter or '', for each listed waiter its owner, its place (µs) and its entry}
local time = redis.call('TIME')
local fields, head = redis.call('HGETALL', KEYS[1]), redis.call('ZRANGE', KEYS[2], 0, 0)[1]
local fence = redis.call('GET', KEYS[4])
local reply = { time[1] * 1000000 + time[2], fields[1] and (redis.call('HGET', KEYS[1], 'state') or '?') or '', fields,
  redis.call('ZCARD', KEYS[2]), fence == '' and '?' or fence or '',
  redis.call('HGET', KEYS[3], head or '-') or '' } -- a value of another type fails here, also without waiters
local first_waiters = ARGV[1] == '0' and {} or redis.call('ZRANGE', KEYS[2], 0, ARGV[1] - 1, 'WITHSCORES')
for i = 1, #first_waiters, 2 do
  reply[#reply + 1] = first_waiters[i]
  reply[#reply + 1] = first_waiters[i + 1]
  reply[#reply + 1] = redis.call('HGET', KEYS[3], first_waiters[i]) or ''
end
return reply
