-- downgrade: turns a write hold into a read hold, which begins a read phase, and grants to the next waiters. Idempotent.
-- KEYS  lock fence
-- ARGV  owner, the writer's token, ttl ms (lease + grace), 'fence ttl ms, channels', the request number
-- Reply 'held' {how, now, token of the read phase, 1 if further waiters can be served (repeat it), otherwise 0}   'not_held' {how, now}
--@include next
local owner, ttl = ARGV[1], tonumber(ARGV[3])
local fence_ttl, channels = string.match(ARGV[4], '^(%d+) ?(.*)$')
local call = begin_call(client_of(owner), fence_ttl, channels, server_time())
local l = open_lock(call, KEYS[1], KEYS[2], QUEUE, ENTRIES)
local hold = read_state(l, owner)
local is_writer = hold and hold.weight == l.capacity
if l.kind ~= 'rw' or not hold or hold.flag ~= 'h' and hold.flag ~= 'g' or is_writer and hold.token ~= ARGV[2] then
  serve(l) -- a sweep may have made room
  return { 'not_held', call.now }
end
if is_writer then
  begin_write(l)
  local may_wait = has_queue(l) -- before the fence is replaced, which may have expired
  l.fence_value = read_fence(l) or hold.token -- a token above the writer's own, also if the fence has expired
  hold.token, hold.weight, l.used = token_for(l, 1, may_wait), 1, 1
end
put(l, owner, 'h', ttl, hold)
return { 'held', call.now, tonumber(hold.token), serve(l) == 'more' and 1 or 0 }
