-- renew: a batch of holds lives on. One foreign or refused key does not stop the others.
-- KEYS  a lock each
-- ARGV  for each key: 'owner token', ttl ms (lease + grace)
-- Reply only the failures: {index, '' (not ours any more) or the server's error}
local failures = {}
for i, key in ipairs(KEYS) do
  local prefix = ARGV[2 * i - 1] .. ' '
  local value = redis.pcall('GET', key)
  local trouble
  if type(value) == 'string' and string.sub(value, 1, #prefix) == prefix then
    local kept = redis.pcall('PEXPIRE', key, ARGV[2 * i])
    if type(kept) == 'table' then trouble = kept.err elseif kept == 0 then trouble = '' end
  elseif type(value) == 'table' and value.err and string.sub(value.err, 1, 9) ~= 'WRONGTYPE' then
    trouble = value.err
  else
    trouble = ''
  end
  if trouble then failures[#failures + 1] = { i - 1, trouble } end
end
return failures
