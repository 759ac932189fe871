-- revoke: a hold is taken away at this node. Nobody renews it here from now on, so it is over when its TTL is, and its holder is told.
-- KEYS  lock queue entry fence
-- ARGV  token, unused, 'fence ttl ms, client uuid, channel prefix', the name of who takes it away
-- Reply {0, ''} there is no such hold   {1, fence} nobody renews it any more
local lock, queue, entries, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local fence_ttl, client, channels = string.match(ARGV[3], '^(%d+) (%x+) (.*)$')
local time = redis.call('TIME')
local stamp = time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
local now = tonumber(stamp)
--@include quorum/votes

local state, holder, token, ticket, limit, rest =
  string.match(redis.call('GET', lock) or '', '^3 (%a+) (%x+:%d+) (%d+) (%d+) (%d+) (.*)$')
if token ~= ARGV[1] or state == 'vote' or state == 'kept' then return { 0, '' } end
local left, last = redis.call('PTTL', lock), last_token()
if left < 0 or left > tonumber(limit) then left = tonumber(limit) end
-- A write that a refusing server rejects, and that changes nothing: the lock is somebody's.
redis.call('PEXPIRE', lock, math.max(left, 1))
redis.call('SET', lock, '3 revoked ' .. holder .. ' ' .. token .. ' ' .. ticket .. ' ' .. limit .. ' ' .. rest, 'KEEPTTL')
if state == 'held' then
  -- What is told this token refuses the old holder.
  last = math.max(last + 1, now)
  local known = redis.call('PTTL', fence)
  keep_fence(string.format('%.0f', last))
  -- Whoever takes it away need not know for how long others remember tokens.
  if known > redis.call('PTTL', fence) then redis.call('PEXPIRE', fence, known) end
end
redis.pcall('PUBLISH', channels .. client_of(holder), 'revoked ' .. token .. ' ' .. lock .. '\n' .. ARGV[4])
return { 1, string.format('%.0f', last) }
