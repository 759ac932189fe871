-- release, and cancel: removes the owner's lock or queue entry, and grants a free lock to the next waiter.
-- KEYS  lock queue entry fence
-- ARGV  owner, keep ms (min_hold: the key stays taken this long), 'fence ttl ms, client uuid, channel prefix', the request number
-- Reply 1 if the owner held the lock, otherwise 0; plus 2 if further dead waiters remain: call again
local lock, queue, entries, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, min_hold = ARGV[1], ARGV[2]
local found = redis.call('MGET', lock, fence)
local value, fence_value = found[1], found[2]
local held = value and string.find(value, '2 ' .. owner .. ' ', 1, true) == 1
local lock_deleted = false
if held then
  redis.call('DEL', lock)
  if min_hold ~= '0' then
    local token, since, name = string.match(value, '^%S+ %S+ 0*(%d+) %d+ (%d+) (.*)$')
    -- The zero keeps a renewal in flight from taking the key for a hold.
    redis.call('SET', lock, '2 ' .. owner .. ' 0' .. token .. ' ' .. min_hold .. ' ' .. since .. ' ' .. name, 'PX', min_hold)
  else
    lock_deleted = true
  end
end
-- A fence without a flag means that there is no queue.
if fence_value and #fence_value == 16 then return (held and '1 ' or '0 ') .. ARGV[4] end
if not redis.call('ZRANGE', queue, 0, 0)[1] then return (held and '1 ' or '0 ') .. ARGV[4] end

--@slow path
local fence_ttl, client, channels = string.match(ARGV[3], '^(%d+) (%x+) (.*)$')
local work_left, alive
local time = redis.call('TIME')
local now_text = time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
local now = tonumber(now_text)
--@include next

note_caller()
if not held then remove(owner) end
-- MGET returns nil for a value of another type, but the lock is not free then.
local free = lock_deleted or not value and redis.call('EXISTS', lock) == 0
local more = free and grant_next('') == 'more'
return (held and 1 or 0) + (more and 2 or 0)
