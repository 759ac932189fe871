-- downgrade: turns a write hold into a read hold, which begins a read phase, and grants to the next waiters. Idempotent.
-- KEYS  lock entry queue fence
-- ARGV  owner, the writer's token, ttl ms (lease + grace), 'fence ttl ms, client uuid, channel prefix', the request number
-- Reply {1, now, token of the read phase, 1 if further waiters can be served (repeat it), otherwise 0}   {0, now} there is no such hold
local lock, queue, entries, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, ttl = ARGV[1], tonumber(ARGV[3])
local fence_ttl, client, channels = string.match(ARGV[4], '^(%d+) (%x+) (.*)$')
local time = redis.call('TIME')
local now_text = time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
local now = tonumber(now_text)
local work_left, alive, fence_value
--@include queue
--@include fence
--@include counted/holders
local record = read_state(owner)
local head = redis.call('ZRANGE', queue, 0, 0)[1]
local flag, _, _, rest, token, weight = string.match(record or '', RECORD)
local is_writer = tonumber(weight) == capacity
if kind ~= 'rw' or flag ~= 'h' and flag ~= 'g' or is_writer and token ~= ARGV[2] then
  if head then grant_next('') end -- a sweep may have made room
  return { 0, now }
end
if is_writer then
  fence_value = read_fence() or token -- a token above the writer's own, also if the fence has expired
  redis.call('HDEL', lock, '-') -- a server that rejects writes stops here
  token = token_for(1, head ~= nil)
  used = 1
  rest = token .. ' 1 ' .. string.match(rest, '^%d+ %d+ (.*)$')
end
put(owner, 'h', ttl, rest)
if head then note_caller() end
local outcome = head and grant_next('')
return { 1, now, tonumber(token), outcome == 'more' and 1 or 0 }
