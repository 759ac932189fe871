-- confirm: gives the owner's lock on this node the token of the whole hold. To repair a hold, it also takes a free lock.
-- KEYS  lock fence epoch
-- ARGV  owner, ttl ms (lease + grace), apply-by µs (16 digits), fence ttl ms, client name, token, quarantine ms, run id,
--       a time that some node has reached (µs), 1 to repair, otherwise 0
-- Reply {1, now} this node has the hold    {0, now} the lock is not the owner's or has a larger token, applied too late, or the
--       node grants nothing yet
local lock, fence, epoch = KEYS[1], KEYS[2], KEYS[3]
local owner, ttl, fence_ttl, name, token = ARGV[1], ARGV[2], ARGV[4], ARGV[5], ARGV[6]
local time = redis.call('TIME')
local now_text = time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
local now = tonumber(now_text)
--@include quorum/epoch

if now_text > ARGV[3] or now < grants_from(ARGV[8], ARGV[7], ARGV[9]) then return { 0, now } end
local value = redis.call('GET', lock)
if value then
  local holder, given = string.match(value, '^3 (%x+:%d+) ([1-9]%d*) ')
  if holder ~= owner or tonumber(given) > tonumber(token) then return { 0, now } end
elseif ARGV[10] == '0' then
  return { 0, now }
end
set_fence(string.format('%.0f', math.max(last_token(), tonumber(token))))
redis.call('SET', lock, '3 ' .. owner .. ' ' .. token .. ' ' .. ttl .. ' ' .. now_text .. ' ' .. name, 'PX', ttl)
return { 1, now }
