-- release, and cancel: removes the owner's lock or queue entry, and grants a free lock to the next waiter.
-- KEYS  lock fence
-- ARGV  '2 owner ' (the start of the value), 'keep ms (min_hold: the key stays taken this long), fence ttl ms, channels', the request number
-- Reply that of `leave`
local call, lock, fence, start = redis.call, KEYS[1], KEYS[2], ARGV[1]
local found = call('MGET', lock, fence)
local value, fence_value = found[1], found[2]
local held = value and string.find(value, start, 1, true) == 1
local is_kept = ARGV[2] >= '1' -- it begins with a zero otherwise
if held then
  call('DEL', lock)
  if is_kept then
    local min_hold, token, since, name = string.match(ARGV[2], '^%d+'), string.match(value, '^%S+ %S+ 0*(%d+) %d+ (%d+) (.*)$')
    -- The zero keeps a renewal in flight from taking the key for a hold.
    call('SET', lock, start .. '0' .. token .. ' ' .. min_hold .. ' ' .. since .. ' ' .. name, 'PX', min_hold)
  end
end
-- A fence without a flag means that there is no queue.
if fence_value and #fence_value == 16 then return (held and 'released ' or 'not_held ') .. ARGV[3] end

--@slow path
--@include leave
local l, owner = open_release(fence_value)
l.is_deleted = held and not is_kept
-- MGET returns nil for a value of another type, but the lock is not free then.
if not l.is_deleted and (value or call('EXISTS', lock) == 1) then l.used = 1 end
return leave(l, owner, held)
