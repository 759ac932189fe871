-- release, and cancel: removes the owner's hold or queue entry, and grants to the next waiters.
-- KEYS  lock fence
-- ARGV  those of release.lua
-- Reply that of `leave`
--@include leave
local l, owner, min_hold = open_release()
return leave(l, owner, read_state(l, owner), min_hold)
