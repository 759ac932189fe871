-- renew: extends a batch of holds. A foreign or rejected key does not stop the others.
-- KEYS  the locks
-- ARGV  for each key: 'owner token', ttl ms (lease + grace); then the request number
-- Reply only the failures: {index, '' (there is no such hold), 'REVOKED' or the server's error}
local time = redis.call('TIME')
local now_text = time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
local now = tonumber(now_text)
--@include counted/extend
local failures = {}
for i, key in ipairs(KEYS) do
  local owner, token = string.match(ARGV[2 * i - 1], '^(%S+) (%d+)$')
  local held, failure = extend(key, owner, token, tonumber(ARGV[2 * i]), now, now_text)
  if not held then failures[#failures + 1] = { i - 1, failure } end
end
return failures
