-- release, and cancel: removes the owner's lock or queue entry, and grants a free lock to the next waiter.
-- KEYS  lock fence
-- ARGV  '2 owner ' (the start of the value), 'keep ms (min_hold: the key stays taken this long), fence ttl ms, channels', the request number
-- Reply that of `leave`
local call, lock, fence = redis.call, KEYS[1], KEYS[2]
local found = call('MGET', lock, fence)
local value, fence_value = found[1], found[2]
local held = value and string.find(value, ARGV[1], 1, true) == 1
-- A fence without a flag means that there is no queue. The second argument begins with a zero if nothing is kept.
if fence_value and #fence_value == 16 and (not held or ARGV[2] < '1') then
  if held then call('DEL', lock) end
  return (held and 'released ' or 'not_held ') .. ARGV[3]
end

--@slow path
--@include leave
local l, owner, min_hold = open_release(fence_value)
-- MGET returns nil for a value of another type, but the lock is not free then.
if not held and (value or call('EXISTS', lock) == 1) then l.used = 1 end
return leave(l, owner, held and (min_hold > 0 and read_state(l, owner, value) or { weight = 1 }), min_hold)
