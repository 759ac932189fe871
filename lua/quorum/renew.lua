-- renew: extends a batch of holds. A foreign or rejected key does not stop the others.
-- KEYS  epoch, and the locks
-- ARGV  run id, quarantine ms, newest time µs, and for each lock: owner, token, ttl ms (lease + grace)
-- Reply only the failures: {index, '' (another owner's), 'REPAIR' (free, or the owner's with a smaller token), 'REVOKED' or the
--       server's error}
local epoch, fence, fence_ttl = KEYS[1]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
--@include quorum/epoch

local grants = now >= grants_from(ARGV[1], ARGV[2], ARGV[3])
local failures = {}
for i = 2, #KEYS do
  local owner, token, ttl = ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]
  local value = redis.pcall('GET', KEYS[i])
  local holder, zeros, given = string.match(type(value) == 'string' and value or '', '^3 (%x+:%d+) (0*)(%d+) ')
  local failure = ''
  if type(value) == 'table' and value.err and string.sub(value.err, 1, 9) ~= 'WRONGTYPE' then
    failure = value.err
  elseif grants and not value then
    failure = 'REPAIR'
  elseif grants and holder == owner then
    if zeros == '00' then
      failure = 'REVOKED'
    elseif zeros == '' and given == token then
      local extended = redis.pcall('PEXPIRE', KEYS[i], ttl)
      failure = type(extended) == 'table' and extended.err or nil
    elseif zeros == '' and tonumber(given) < tonumber(token) then
      failure = 'REPAIR'
    end
  end
  if failure then failures[#failures + 1] = { i - 2, failure } end
end
return failures
