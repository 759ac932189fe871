-- inspect: returns the state of a lock. Reads only, so the reply can contain holders that have expired.
-- KEYS  lock queue entry fence, with the names of the kind; the record
-- ARGV  how many waiters to list, the request number
-- Reply {now, state ('' if there is none, '?' if it is foreign), {holder, its record ...}, number of waiters, fence or '', entry of the
--        first waiter or '', success record of once_per, '' or '?' (another type), for each listed waiter its owner, its place (µs) and
--        its entry}
--@include queue
--@include fence
--@include holders
local call = begin_call('', 0, '', server_time())
local l = { call = call, lock = KEYS[1], queue = KEYS[2], entries = KEYS[3], used = 0 }
local held, fields = describe(l)
local head, fence = redis.call('ZRANGE', l.queue, 0, 0)[1], redis.call('GET', KEYS[4])
local record = redis.pcall('GET', KEYS[5]) -- a value of another type does not hide the lock
local reply = { call.now, held, fields, redis.call('ZCARD', l.queue), fence == '' and '?' or fence or '',
  redis.call('HGET', l.entries, head or '-') or '', -- a value of another type fails here, also without waiters
  record and (type(record) == 'string' and record ~= '' and record or '?') or '' }
local waiters = ARGV[1] == '0' and {} or redis.call('ZRANGE', l.queue, 0, ARGV[1] - 1, 'WITHSCORES')
for i = 1, #waiters, 2 do
  reply[#reply + 1] = waiters[i]
  reply[#reply + 1] = waiters[i + 1]
  reply[#reply + 1] = redis.call('HGET', l.entries, waiters[i]) or ''
end
return reply
