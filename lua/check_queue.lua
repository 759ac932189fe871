-- check_queue: checks all the locks that a client waits for, and grants to each waiter that can be served.
-- KEYS  for each lock: lock fence
-- ARGV  client uuid, fence ttl ms, channels, then for each lock: the number of owners, the owners; then the request number
-- Reply {now, for each lock: {state or '', 1 to call again (otherwise 0), {holding owner's index ...}, {missing owner's index ...},
--       holder, its record ...}}, or an error text for a lock that failed
--@include next
local call = begin_call(ARGV[1], ARGV[2], string.match(ARGV[3], '^ ?(.*)$'), server_time())

local function check_queue(lock, fence, first_arg, last_arg)
  local l = open_lock(call, lock, fence, QUEUE, ENTRIES)
  call.work_left = math.max(call.work_left, MIN_WORK)
  read_state(l, '')
  note_caller(l) -- the queue of another kind of lock fails here
  local outcome = grant_next(l)
  local holding, missing = {}, {}
  for i = first_arg, last_arg do
    if find_hold(l, ARGV[i]) then
      holding[#holding + 1] = i - first_arg
    elseif not redis.call('ZSCORE', l.queue, ARGV[i]) then
      missing[#missing + 1] = i - first_arg
    end
  end
  return with_holders(l, { state(l), outcome == 'more' and 1 or 0, holding, missing })
end

local replies, arg = { call.now }, 4
for k = 1, #KEYS, 2 do
  local count = tonumber(ARGV[arg])
  local ok, reply = pcall(check_queue, KEYS[k], KEYS[k + 1], arg + 1, arg + count)
  if not ok then reply = type(reply) == 'table' and reply.err or tostring(reply) end
  replies[#replies + 1] = reply
  arg = arg + count + 1
end
return replies
