-- acquire, confirm and repair: takes the lock on this node if it is free; gives the owner's lock the token of the whole hold;
-- and does either for a hold that this node may have lost.
-- KEYS  lock fence epoch
-- ARGV  owner, ttl ms (lease + grace), apply-by µs (16 digits), fence ttl ms, client name, token (for an acquire, the floor
--       token), quarantine ms, run id, a time that some node has reached (µs), 'acquire', 'confirm' or 'repair'
-- Reply {1, now, token, 1 if other clients want the lock, otherwise 0} granted    {3, now, value} taken, lost, or has a larger token
--       {4, now} applied too late    {5, now} foreign value    {7, now, from} the node grants nothing before that time
--       3 ends with the remaining ms of a lock that min_hold keeps
local lock, fence, epoch = KEYS[1], KEYS[2], KEYS[3]
local owner, ttl, fence_ttl, name, token, action = ARGV[1], ARGV[2], ARGV[4], ARGV[5], ARGV[6], ARGV[10]
local time = redis.call('TIME')
local now_text = time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
local now = tonumber(now_text)
--@include quorum/epoch

if now_text > ARGV[3] then return { 4, now } end
local from = grants_from(ARGV[8], ARGV[7], ARGV[9])
if now < from then return { 7, now, from } end
local value = redis.call('GET', lock)
local known, flag = last_token()
if value then
  local client, number, zeros, given, max_ttl = string.match(value, '^3 (%x+:)(%d+) (0*)(%d+) (%d+) %d+ ')
  if not client then return { 5, now } end
  if action == 'acquire' or client .. number ~= owner or zeros ~= '' or tonumber(given) > tonumber(token) then
    if flag == '' and known > 0 and string.sub(owner, 1, #client) ~= client then
      redis.call('SET', fence, string.format('%.0f+', known), 'KEEPTTL')
    end
    -- Shortens a TTL that exceeds what the holder can have set, as after a backward step of the server's clock.
    local remaining = redis.call('PTTL', lock)
    if remaining < 0 or remaining > tonumber(max_ttl) then
      redis.call('PEXPIRE', lock, max_ttl)
      remaining = tonumber(max_ttl)
    end
    return { 3, now, value, zeros == '0' and remaining or nil }
  end
elseif action == 'confirm' then
  return { 3, now, '' }
end
-- All nodes take the floor token, unless their clock or a token that they know has reached it.
local reached = math.max(known + 1, now)
if action == 'acquire' and reached > tonumber(token) then token = string.format('%.0f', reached) end
set_fence(string.format('%.0f', math.max(known, tonumber(token)))) -- a server that rejects writes stops here
redis.call('SET', lock, '3 ' .. owner .. ' ' .. token .. ' ' .. ttl .. ' ' .. now_text .. ' ' .. name, 'PX', ttl)
return { 1, now, tonumber(token), flag == '+' and 1 or 0 }
