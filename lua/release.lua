-- release, and cancel: whatever this owner has here is gone, and the next waiter is served.
-- KEYS  lock queue entry fence
-- ARGV  owner, client uuid, channel prefix, keep ms (min_hold: the key stays taken this long)
-- Reply {1 it was the holder or 0 it was not, 1 there are more dead waiters: call again, or 0}
local lock, queue, entries, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, keep = ARGV[1], tonumber(ARGV[4])
local value = redis.pcall('GET', lock)
local held = type(value) == 'string' and string.sub(value, 1, #owner + 1) == owner .. ' '
if held then
  redis.call('DEL', lock)
  if keep > 0 then
    local token, since, name = string.match(value, '^%S+ (%d+) %d+ (%d+) (.*)$')
    -- The zero: a renewal that is still on its way must not take the key for a hold.
    redis.call('SET', lock, owner .. ' 0' .. token .. ' ' .. ARGV[4] .. ' ' .. since .. ' ' .. name, 'PX', ARGV[4])
  else
    value = false
  end
end
local more = false
if redis.call('EXISTS', queue) == 1 then
  local client, channels = ARGV[2], ARGV[3]
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  --@include next
  remove(owner)
  if not value then more = drive('') == 'more' end
end
return { held and 1 or 0, more and 1 or 0 }
