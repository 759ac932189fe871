-- confirm: turns a short grant into a hold for the full lease.
-- KEYS  lock
-- ARGV  owner, ttl ms (lease + grace)
-- Reply 'held' {how, now, token} confirmed   'not_held' {how, now}
--@include time
--@include extend
local now_text = server_time()
local token, failure = extend(KEYS[1], ARGV[1], nil, ARGV[2], now_text)
if not token and failure ~= '' and failure ~= 'REVOKED' then return redis.error_reply(failure) end
if not token then return { 'not_held', tonumber(now_text) } end
-- Its client responds. Ignores an error, because the entries may be on another server while a slot migrates.
redis.pcall('HDEL', (string.gsub(KEYS[1], ':lock:', ':' .. ENTRIES .. ':', 1)), '?' .. string.match(ARGV[1], '^%x+'))
return { 'held', tonumber(now_text), tonumber(token) }
