-- Fragment: `leave` removes an owner's hold, which min_hold keeps for as many ms, or its queue entry, and grants to the next
-- waiters.
--@include next

-- Returns 'released' or 'not_held', and ' more' if further waiters can be served: call again.
local function leave(l, owner, hold, min_hold)
  if hold and min_hold > 0 then
    begin_write(l)
    put(l, owner, 'k', min_hold, hold)
  elseif hold then
    drop(l, owner, hold.weight)
  end
  if not hold and has_queue(l) then remove(l, owner) end
  return (hold and 'released' or 'not_held') .. (serve(l) == 'more' and ' more' or '')
end

-- Reads the arguments of a release. Returns the lock, the owner, and how long the lock is kept (ms).
local function open_release(fence_value)
  local min_hold, fence_ttl, channels = string.match(ARGV[2], '^(%d+) (%d+) ?([^\n]*)')
  local owner = string.sub(ARGV[1], 3, -2)
  local call = begin_call(client_of(owner), fence_ttl, channels, server_time())
  return open_lock(call, KEYS[1], KEYS[2], QUEUE, ENTRIES, fence_value), owner, tonumber(min_hold)
end
