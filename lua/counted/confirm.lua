-- confirm: turns a short grant into a hold for the full lease.
-- KEYS  lock
-- ARGV  those of confirm.lua, the request number
-- Reply that of confirm.lua
local time = redis.call('TIME')
local now_text = time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
local now = tonumber(now_text)
--@include counted/extend
local token, failure = extend(KEYS[1], ARGV[1], nil, tonumber(ARGV[2]), now, now_text)
if not token and failure ~= '' and failure ~= 'REVOKED' then return redis.error_reply(failure) end
if not token then return { 'not_held', now } end
redis.pcall('HDEL', (string.gsub(KEYS[1], ':lock:', ':queue:', 1)), '?' .. string.match(ARGV[1], '^%x+'))
return { 'held', now, tonumber(token) }
