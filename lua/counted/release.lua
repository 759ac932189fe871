-- release, and cancel: removes the owner's hold or queue entry, and grants to the next waiters.
-- KEYS  lock fence
-- ARGV  those of release.lua
-- Reply that of `leave`
--@include leave
local l, owner, min_hold = open_release()
local hold = read_state(l, owner)
if hold and min_hold > 0 then
  put(l, owner, 'k', min_hold, hold)
elseif hold then
  drop(l, owner, hold.weight)
end
return leave(l, owner, hold)
