-- release, and cancel: removes the owner's lock or queue entry, and grants a free vote to the lowest ticket.
-- KEYS  lock queue entry fence, and epoch for a hand-off
-- ARGV  owner, keep ms (min_hold: the key stays taken this long), 'fence ttl ms, client uuid, channel prefix', and for a hand-off:
--       'token to confirm the next holder with at once, if it is above the node's clock and all tokens that it knows, ticket µs,
--       quarantine ms, run id'
-- Reply 1 if the owner had the vote of this node, confirmed or not, otherwise 0
local lock, queue, entries, fence, epoch = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local owner, min_hold = ARGV[1], ARGV[2]
local fence_ttl, client, channels = string.match(ARGV[3], '^(%d+) (%x+) (.*)$')
local time = redis.call('TIME')
local now_text = time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
local now = tonumber(now_text)
--@include quorum/epoch
--@include quorum/votes

local named_token, latest_time, quarantine, run_id = string.match(ARGV[4] or '', '^(%d+) (%d+) (%d+) (%S+)$')
-- A node that may have forgotten the holder does not confirm its successor.
if named_token and now < votes_from(run_id, quarantine, latest_time) then named_token = nil end
local value = redis.call('GET', lock)
local state, holder, rest, since, name =
  string.match(value or '', '^3 (%a+) (%x+:%d+) (%d+ %d+) %d+ (%d+) (.*)$')
local held = holder == owner and state ~= 'kept'
remove(owner)
if held then
  redis.call('DEL', lock)
  if min_hold ~= '0' then
    redis.call('SET', lock, '3 kept ' .. owner .. ' ' .. rest .. ' ' .. min_hold .. ' ' .. since .. ' ' .. name, 'PX', min_hold)
  end
end
if held and min_hold == '0' or not value then grant_next('', named_token) end
return held and 1 or 0
