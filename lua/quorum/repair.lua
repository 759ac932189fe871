-- repair: takes this node's vote back for a confirmed hold that the node lost, if the vote is free or unconfirmed. An
-- unconfirmed vote can expire at any time, so replacing it is safe: its owner requests it again with its ticket. The
-- vote may also be the hold's own, granted after the quorum was reached.
-- KEYS  lock queue entry fence epoch
-- ARGV  owner, token, ticket µs, ttl ms (lease + grace), apply-by µs (16 digits), fence ttl ms, client name, run id, quarantine ms
-- Reply {1, now, token} the vote is the owner's   {0, now} not free, applied too late, or the node does not vote yet
local lock, queue, entries, fence, epoch = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local owner, token, ticket, ttl, fence_ttl, name = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[6], ARGV[7]
local client, channels = '', ''
local time = redis.call('TIME')
local now_text = time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
local now = tonumber(now_text)
--@include quorum/epoch
--@include quorum/votes

if now_text > ARGV[5] or now < votes_from(ARGV[8], ARGV[9], ticket) then return { 0, now } end
local value = redis.call('GET', lock)
if value and string.sub(value, 1, 7) ~= '3 vote ' then return { 0, now } end
redis.call('DEL', lock) -- as in `vote_for`: a server that rejects writes stops here
if last_token() < tonumber(token) then set_fence(token) end
redis.call('SET', lock, '3 held ' .. owner .. ' ' .. token .. ' ' .. ticket .. ' ' .. ttl .. ' ' .. now_text .. ' ' .. name, 'PX', ttl)
return { 1, now, tonumber(token) }
