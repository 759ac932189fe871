-- renew: extends a batch of holds. A foreign or rejected key does not stop the others.
-- KEYS  epoch, and the locks
-- ARGV  run id, quarantine ms, newest time µs, and for each lock: 'owner token', ttl ms (lease + grace)
-- Reply only the failures: {index, '' (another owner's, or unknown), 'FREE' (free, or a vote that is not confirmed),
--       'REVOKED' or the server's error}
local epoch = KEYS[1]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
--@include quorum/epoch

local is_voting = now >= votes_from(ARGV[1], ARGV[2], ARGV[3])
local failures = {}
for i = 2, #KEYS do
  local prefix = '3 held ' .. ARGV[2 * i] .. ' '
  local value = redis.pcall('GET', KEYS[i])
  local failure
  if not is_voting then
    failure = ''
  elseif not value or type(value) == 'string' and string.sub(value, 1, 7) == '3 vote ' then
    failure = 'FREE'
  elseif type(value) == 'string' and string.sub(value, 1, #prefix) == prefix then
    local extended = redis.pcall('PEXPIRE', KEYS[i], ARGV[2 * i + 1])
    if type(extended) == 'table' then failure = extended.err end
  elseif type(value) == 'table' and value.err and string.sub(value.err, 1, 9) ~= 'WRONGTYPE' then
    failure = value.err
  elseif type(value) == 'string' and string.sub(value, 1, #prefix + 3) == '3 revoked ' .. ARGV[2 * i] .. ' ' then
    failure = 'REVOKED'
  else
    failure = ''
  end
  if failure then failures[#failures + 1] = { i - 2, failure } end
end
return failures
