-- look: checks all the locks that a client waits for, and grants each free one to its next waiter.
-- KEYS  for each lock: lock queue entry fence
-- ARGV  client uuid, channel prefix, fence ttl ms, then for each lock: the number of owners, the owners
-- Reply {now, for each lock: {value, remaining ttl, {missing owner's index ...}}}, or an error text for a lock that failed
local client, channels, fence_ttl = ARGV[1], ARGV[2], ARGV[3]
local time = redis.call('TIME')
local stamp = time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
local now = tonumber(stamp)
local work, alive

local function look(lock, queue, entries, fence, first, till)
  local last, open
  --@include next
  local value = redis.call('GET', lock)
  if not value then
    drive('')
    value = redis.call('GET', lock)
  end
  local left, holder, limit = 0, nil, nil
  if value then
    holder, limit = string.match(value, '^2 (%x+:%d+) %d+ (%d+) %d+ ')
    if not holder then return 'FOREIGN a value that is not distlock\'s' end
    left = clamp(holder, limit)
  end
  local missing = {}
  for i = first, till do
    if ARGV[i] ~= holder and not redis.call('ZSCORE', queue, ARGV[i]) then
      missing[#missing + 1] = i - first
    elseif is_polling(client) then
      local rest = string.match(redis.call('HGET', entries, ARGV[i]) or '', ' .*')
      if rest then redis.call('HSET', entries, ARGV[i], soon() .. rest) end
    end
  end
  return { value or '', left, missing }
end

local replies, at = { now }, 4
for k = 1, #KEYS / 4 do
  local base, count = 4 * (k - 1), tonumber(ARGV[at])
  local ok, reply = pcall(look, KEYS[base + 1], KEYS[base + 2], KEYS[base + 3], KEYS[base + 4], at + 1, at + count)
  if not ok then reply = type(reply) == 'table' and reply.err or tostring(reply) end
  replies[#replies + 1] = reply
  at = at + count + 1
end
return replies
