-- release, and cancel: whatever this owner has here is gone, and the lowest ticket has the vote.
-- KEYS  lock queue entry fence, and epoch if the lock is handed on
-- ARGV  owner, keep ms (min_hold: the key stays taken this long), 'fence ttl ms, client uuid, channel prefix', and if it is handed on:
--       'token with which the next one has the lock at once, if that is above the node's clock and all that it knows, ticket µs,
--       quarantine ms, run id'
-- Reply 1 it was the holder, or 0 it was not
local lock, queue, entries, fence, epoch = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local owner, keep = ARGV[1], ARGV[2]
local fence_ttl, client, channels = string.match(ARGV[3], '^(%d+) (%x+) (.*)$')
local time = redis.call('TIME')
local stamp = time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
local now = tonumber(stamp)
--@include quorum/epoch
--@include quorum/votes

local named, newest, quarantine, run = string.match(ARGV[4] or '', '^(%d+) (%d+) (%d+) (%S+)$')
-- A node that may have forgotten who holds the lock has nothing to hand on.
if named and now < votes_from(run, quarantine, newest) then named = nil end
local value = redis.call('GET', lock)
local state, holder, rest, since, name =
  string.match(value or '', '^3 (%a+) (%x+:%d+) (%d+ %d+) %d+ (%d+) (.*)$')
local held = holder == owner and state ~= 'kept'
remove(owner)
if held then
  redis.call('DEL', lock)
  if keep ~= '0' then
    redis.call('SET', lock, '3 kept ' .. owner .. ' ' .. rest .. ' ' .. keep .. ' ' .. since .. ' ' .. name, 'PX', keep)
  end
end
if held and keep == '0' or not value then drive('', named) end
return held and 1 or 0
