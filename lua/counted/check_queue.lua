-- check_queue: checks all the locks that a client waits for, and grants to each waiter that can be served.
-- KEYS  for each lock: lock entry queue fence
-- ARGV  client uuid, channel prefix, fence ttl ms, then for each lock: the number of owners, the owners; then the request number
-- Reply {now, for each lock: {state or '', 1 to call again (otherwise 0), {holding owner's index ...}, {missing owner's index ...},
--       fields of the lock ...}}, or an error text for a lock that failed
local client, channels, fence_ttl = ARGV[1], ARGV[2], ARGV[3]
local time = redis.call('TIME')
local now_text = time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
local now = tonumber(now_text)
local work_left, alive

local function check_queue(lock, queue, entries, fence, first_arg, last_arg)
  local fence_value
  --@include queue
  --@include fence
  --@include counted/holders
  read_state('-')
  redis.call('ZCARD', queue) -- a mutex's queue fails here
  note_caller()
  local outcome = grant_next('')
  local holding, missing = {}, {}
  for i = first_arg, last_arg do
    if redis.call('HGET', lock, ARGV[i]) then
      holding[#holding + 1] = i - first_arg
    elseif not redis.call('ZSCORE', queue, ARGV[i]) then
      missing[#missing + 1] = i - first_arg
    elseif is_polling(client) then
      local rest = string.match(redis.call('HGET', entries, ARGV[i]) or '', ' .*')
      if rest then redis.call('HSET', entries, ARGV[i], polling_deadline() .. rest) end
    end
  end
  return with_holders({ kind and state() or '', outcome == 'more' and 1 or 0, holding, missing })
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
