-- release, and cancel: removes the owner's lock or queue entry, and grants a free lock to the next waiter.
-- KEYS  lock fence
-- ARGV  owner, 'keep ms (min_hold: the key stays taken this long), fence ttl ms, names, channel prefix', the request number
-- Reply that of `leave`
local lock, fence, owner = KEYS[1], KEYS[2], ARGV[1]
local found = redis.call('MGET', lock, fence)
local value, fence_value = found[1], found[2]
local held = value and string.find(value, '2 ' .. owner .. ' ', 1, true) == 1
local is_kept = string.sub(ARGV[2], 1, 2) ~= '0 '
if held then
  redis.call('DEL', lock)
  if is_kept then
    local min_hold, token, since, name = string.match(ARGV[2], '^%d+'), string.match(value, '^%S+ %S+ 0*(%d+) %d+ (%d+) (.*)$')
    -- The zero keeps a renewal in flight from taking the key for a hold.
    redis.call('SET', lock, '2 ' .. owner .. ' 0' .. token .. ' ' .. min_hold .. ' ' .. since .. ' ' .. name, 'PX', min_hold)
  end
end
-- A fence without a flag means that there is no queue.
if fence_value and #fence_value == 16 then return (held and 'released ' or 'not_held ') .. ARGV[#ARGV] end

--@slow path
--@include leave
local l = open_release(fence_value)
l.is_deleted = held and not is_kept
if not l.is_deleted then read_state(l, owner, not held and value) end
return leave(l, owner, held)
