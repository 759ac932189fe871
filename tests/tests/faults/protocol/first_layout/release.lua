-- release, and cancel: whatever this owner has here is gone, and the next waiter is served.
-- KEYS  lock queue entry fence
-- ARGV  owner, client uuid, channel prefix, keep ms (min_hold: the key stays taken this long), fence ttl ms
-- Reply {1 it was the holder or 0 it was not, 1 there are more dead waiters: call again, or 0}
local lock, queue, entries, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner = ARGV[1]
local value = redis.pcall('GET', lock)
local held = type(value) == 'string' and string.find(value, owner .. ' ', 1, true) == 1
if held then
  redis.call('DEL', lock)
  if ARGV[4] ~= '0' then
    local token, since, name = string.match(value, '^%S+ (%d+) %d+ (%d+) (.*)$')
    -- The zero: a renewal that is still on its way must not take the key for a hold.
    redis.call('SET', lock, owner .. ' 0' .. token .. ' ' .. ARGV[4] .. ' ' .. since .. ' ' .. name, 'PX', ARGV[4])
  else
    value = false
  end
end
local head = redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')
if not head[1] then return { held and 1 or 0, 0 } end

local client, channels, fence_ttl = ARGV[2], ARGV[3], ARGV[5]
local work, alive
local time = redis.call('TIME')
local stamp = time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
local now = tonumber(stamp)
--@include next

-- A holder is in the queue only if its grant was never confirmed, and then it is the head.
if not held or head[1] == owner then
  remove(owner)
  head = nil
end
local more = not value and drive('', head) == 'more'
return { held and 1 or 0, more and 1 or 0 }
