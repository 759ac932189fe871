-- yield: takes a vote from its owner, queues that owner again, and gives the vote to the lowest ticket.
-- Ignores a vote with another token.
-- KEYS  lock queue entry fence
-- ARGV  owner, token, ticket µs, 'lease ms, longest ttl ms, client name', remaining wait ms,
--       'fence ttl ms, client uuid, channel prefix'
-- Reply now, as a string
local lock, queue, entries, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, ticket = ARGV[1], ARGV[3]
local fence_ttl, client, channels = string.match(ARGV[6], '^(%d+) (%x+) (.*)$')
local time = redis.call('TIME')
local now_text = time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
local now = tonumber(now_text)
--@include quorum/votes

local state, holder, token = string.match(redis.call('GET', lock) or '', '^3 (%a+) (%x+:%d+) (%d+) ')
if holder == owner and token == ARGV[2] and not has_ended(state) then
  redis.call('DEL', lock)
  enqueue(owner, ticket, ARGV[4], ARGV[5])
  grant_next('')
end
return now_text
