-- confirm: turns a short grant into a hold for the full lease.
-- KEYS  lock queue
-- ARGV  owner, ttl ms (lease + grace), client uuid, the request number
-- Reply {1, now, token} confirmed   {0, now} there is no such hold
local time = redis.call('TIME')
local now_text = time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
local now = tonumber(now_text)
--@include counted/extend
local token, failure = extend(KEYS[1], ARGV[1], nil, tonumber(ARGV[2]), now, now_text)
if not token and failure ~= '' and failure ~= 'REVOKED' then return redis.error_reply(failure) end
if not token then return { 0, now } end
redis.call('HDEL', KEYS[2], '?' .. ARGV[3])
return { 1, now, tonumber(token) }
