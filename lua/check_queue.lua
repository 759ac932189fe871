-- check_queue: checks all the locks that a client waits for, and grants each free one to its next waiter.
-- KEYS  for each lock: lock queue entry fence
-- ARGV  client uuid, channel prefix, fence ttl ms, then for each lock: the number of owners, the owners
-- Reply {now, for each lock: {value, remaining ttl, {missing owner's index ...}}}, or an error text for a lock that failed
local client, channels, fence_ttl = ARGV[1], ARGV[2], ARGV[3]
local time = redis.call('TIME')
local now_text = time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
local now = tonumber(now_text)
local work_left, alive

local function check_queue(lock, queue, entries, fence, first_arg, last_arg)
  local fence_value, lock_deleted
  --@include next
  note_caller()
  local value = redis.call('GET', lock)
  if not value then
    grant_next('')
    value = redis.call('GET', lock)
  end
  local remaining, holder, max_ttl = 0, nil, nil
  if value then
    holder, max_ttl = string.match(value, '^2 (%x+:%d+) %d+ (%d+) %d+ ')
    if not holder then return 'FOREIGN the lock key holds a value that distlock did not write' end
    remaining = clamp_ttl(holder, max_ttl)
  end
  local missing = {}
  for i = first_arg, last_arg do
    if ARGV[i] ~= holder and not redis.call('ZSCORE', queue, ARGV[i]) then
      missing[#missing + 1] = i - first_arg
    elseif is_polling(client) then
      local rest = string.match(redis.call('HGET', entries, ARGV[i]) or '', ' .*')
      if rest then redis.call('HSET', entries, ARGV[i], polling_deadline() .. rest) end
    end
  end
  return { value or '', remaining, missing }
end

local replies, arg = { now }, 4
for k = 1, #KEYS / 4 do
  local base, count = 4 * (k - 1), tonumber(ARGV[arg])
  local ok, reply = pcall(check_queue, KEYS[base + 1], KEYS[base + 2], KEYS[base + 3], KEYS[base + 4], arg + 1, arg + count)
  if not ok then reply = type(reply) == 'table' and reply.err or tostring(reply) end
  replies[#replies + 1] = reply
  arg = arg + count + 1
end
return replies
