-- confirm: turns a vote into a hold for the full lease, with the largest token of all the owner's votes.
-- KEYS  lock queue entry fence epoch
-- ARGV  owner, token, ttl ms (lease + grace), fence ttl ms, ticket µs, quarantine ms, run id
-- Reply {1, now, token} confirmed   {2, now, token} the vote was given anew, with this larger token   {0, now} not this owner's
local lock, queue, entries, fence, epoch = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local owner, token, ttl, fence_ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local client, channels = '', ''
local time = redis.call('TIME')
local now_text = time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
local now = tonumber(now_text)
--@include quorum/epoch
--@include quorum/votes

if now < votes_from(ARGV[7], ARGV[6], ARGV[5]) then return { 0, now } end
local value = redis.call('GET', lock)
local state, holder, given, ticket, _, since, name =
  string.match(value or '', '^3 (%a+) (%x+:%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
if holder ~= owner or has_ended(state) then return { 0, now } end
-- In the meantime the lock may have had other holders, with tokens above the one to confirm.
if tonumber(given) > tonumber(token) then return { 2, now, tonumber(given) } end
if last_token() < tonumber(token) then set_fence(token) end
redis.call('SET', lock, '3 held ' .. owner .. ' ' .. token .. ' ' .. ticket .. ' ' .. ttl .. ' ' .. since .. ' ' .. name, 'PX', ttl)
return { 1, now, tonumber(token) }
