-- inspect: returns the state of a lock. Reads only.
-- KEYS  lock queue entry fence record
-- ARGV  how many waiters to list
-- Reply {now, value or '', remaining ttl, number of waiters, fence or '', 1 if there is a value, otherwise 0,
--        success record of once_per, '' or '?' (another type), for each listed waiter its owner, its place (µs) and its entry}
local time = redis.call('TIME')
local value = redis.call('GET', KEYS[1])
local waiters = redis.call('ZCARD', KEYS[2])
local fence = redis.call('GET', KEYS[4])
local record = redis.pcall('GET', KEYS[5]) -- a value of another type does not hide the lock
local reply = { time[1] * 1000000 + time[2], value or '', redis.call('PTTL', KEYS[1]),
  waiters, fence == '' and '?' or fence or '', value and 1 or 0,
  record and (type(record) == 'string' and record ~= '' and record or '?') or '' }
if ARGV[1] ~= '0' and waiters > 0 then
  local first_waiters = redis.call('ZRANGE', KEYS[2], 0, ARGV[1] - 1, 'WITHSCORES')
  for i = 1, #first_waiters, 2 do
    reply[#reply + 1] = first_waiters[i]
    reply[#reply + 1] = first_waiters[i + 1]
    reply[#reply + 1] = redis.call('HGET', KEYS[3], first_waiters[i]) or ''
  end
end
return reply
