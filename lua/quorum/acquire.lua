-- acquire: takes the lock on this node, if it is free there.
-- KEYS  lock fence epoch
-- ARGV  owner, ttl ms (lease + grace), apply-by µs (16 digits), fence ttl ms, client name, floor token µs, quarantine ms, run id
-- Reply {1, now, token} granted    {3, now, value} taken    {4, now} applied too late    {5, now} foreign value
--       {7, now, from} the node grants nothing before that time
--       3 ends with the remaining ms of a lock that min_hold keeps
local lock, fence, epoch = KEYS[1], KEYS[2], KEYS[3]
local owner, ttl, fence_ttl, name, token = ARGV[1], ARGV[2], ARGV[4], ARGV[5], ARGV[6]
local time = redis.call('TIME')
local now_text = time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
local now = tonumber(now_text)
--@include quorum/epoch

if now_text > ARGV[3] then return { 4, now } end
local from = grants_from(ARGV[8], ARGV[7], token)
if now < from then return { 7, now, from } end
local value = redis.call('GET', lock)
if value then
  local zeros, max_ttl = string.match(value, '^3 %x+:%d+ (0*)%d+ (%d+) %d+ ')
  if not zeros then return { 5, now } end
  -- Shortens a TTL that exceeds what the holder can have set, as after a backward step of the server's clock.
  local remaining = redis.call('PTTL', lock)
  if remaining < 0 or remaining > tonumber(max_ttl) then
    redis.call('PEXPIRE', lock, max_ttl)
    remaining = tonumber(max_ttl)
  end
  return { 3, now, value, zeros == '0' and remaining or nil }
end
-- All nodes take the floor token, unless their clock or a token that they know has reached it.
local reached = math.max(last_token() + 1, now)
if reached > tonumber(token) then token = string.format('%.0f', reached) end
set_fence(token) -- a server that rejects writes stops here
redis.call('SET', lock, '3 ' .. owner .. ' ' .. token .. ' ' .. ttl .. ' ' .. now_text .. ' ' .. name, 'PX', ttl)
return { 1, now, tonumber(token) }
