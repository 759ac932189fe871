-- confirm: turns a short grant into a hold for the full lease.
-- KEYS  lock
-- ARGV  owner, ttl ms (lease + grace)
-- Reply 'held' {how, now, token} confirmed   'not_held' {how, now}
local value = redis.call('GET', KEYS[1])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
-- A token with a leading zero does not match: the lock was released and is kept by min_hold, or was revoked.
local token = value and string.match(value, '^2 %x+:%d+ ([1-9]%d*) ')
if not token or string.sub(value, 3, #ARGV[1] + 3) ~= ARGV[1] .. ' ' then return { 'not_held', now } end
redis.call('PEXPIRE', KEYS[1], ARGV[2]) -- PEXPIRE, not SET: it works under OOM, and cannot re-create a key
-- Its client responds. Ignores an error, because the entries may be on another server while a slot migrates.
redis.pcall('HDEL', (string.gsub(KEYS[1], ':lock:', ':entry:', 1)), '?' .. string.match(ARGV[1], '^%x+'))
return { 'held', now, tonumber(token) }
