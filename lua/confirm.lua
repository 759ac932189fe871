-- confirm: turns a short grant into a hold for the full lease.
-- KEYS  lock entry
-- ARGV  owner, ttl ms (lease + grace)
-- Reply 'held' {how, now, token} confirmed   'not_held' {how, now}
local value = redis.call('GET', KEYS[1])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
-- A token with a leading zero does not match: the lock was released and is kept by min_hold, or was revoked.
local token = value and string.match(value, '^2 %x+:%d+ ([1-9]%d*) ')
if not token or string.sub(value, 3, #ARGV[1] + 3) ~= ARGV[1] .. ' ' then return { 'not_held', now } end
redis.call('PEXPIRE', KEYS[1], ARGV[2]) -- PEXPIRE, not SET: it works under OOM, and cannot re-create a key
redis.call('HDEL', KEYS[2], '?' .. string.match(ARGV[1], '^%x+')) -- its client responds
return { 'held', now, tonumber(token) }
