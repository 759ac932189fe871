-- Fragment: the waiters of a lock, and their clients. `begin_call` and `open_lock` make what the functions of all fragments
-- take: a table about this script's call, and one about a lock.
--
-- Limits the work that one script does on queues, so that it does not block the server: an entry costs 5 to serve or remove.
-- Each lock of a queue check has at least `MIN_WORK`: none waits for another's dead waiters. The next call continues.
local WORK_LIMIT, MIN_WORK, ENTRY_COST, SLICE = 500, 10, 5, 100

--@include time

-- The caller's uuid, the TTL of a fence (ms), the end of the prefix of client channels, and the server's time in µs.
local function begin_call(client, fence_ttl, channels, now_text)
  return { client = client, fence_ttl = fence_ttl, channels = channels, now_text = now_text, now = tonumber(now_text),
    work_left = WORK_LIMIT, alive = false } -- whether each other client is alive, as far as it is known
end

-- The keys of the lock and its fence, the words in place of `lock` in the keys of the queue and its entries, and the fence's
-- value if it was read. All keys of a lock are in the same slot.
local function open_lock(call, lock, fence, queue, entries, fence_value)
  local colon = string.find(lock, ':lock:', 1, true) -- behind the namespace, which does not contain this
  local start, key = string.sub(lock, 1, colon), string.sub(lock, colon + 5)
  return { call = call, lock = lock, queue = start .. queue .. key, entries = start .. entries .. key, fence = fence,
    channels = start .. 'client:' .. call.channels, fence_value = fence_value, used = 0, is_noted = false }
end

local function after(call, ms)
  return string.format('%.0f', call.now + ms * 1000)
end

-- Removes an entry, and the note of the calling client.
local function remove(l, owner)
  redis.call('ZREM', l.queue, owner)
  redis.call('HDEL', l.entries, owner, l.is_noted and owner or '?' .. l.call.client)
  l.is_noted = true
end

local function client_of(owner)
  return string.match(owner, '^[^:]+')
end

-- Returns true unless the client of a holder or waiter with this name is known to be dead. A name that begins with a
-- separator is of a client behind a proxy, which has no subscription.
local function is_alive(l, client_id, name)
  local call = l.call
  if client_id == call.client or string.byte(name) == 31 then return true end
  call.alive = call.alive or {}
  local alive = call.alive
  if alive[client_id] == nil then
    -- NUMSUB, because the count that PUBLISH returns includes clients that PSUBSCRIBE to *.
    local subscribers = redis.pcall('PUBSUB', 'NUMSUB', l.channels .. client_id)
    alive[client_id] = subscribers.err ~= nil or subscribers[2] > 0
  end
  return alive[client_id]
end

-- While there is a queue, the hash of its entries also has a field '?client' for each client that was granted the lock
-- and has not been heard of since: when its grant ends.
--
-- Notes that the calling client responds. Writes only if there is a note: a first write would let others pass under OOM.
local function note_caller(l)
  local note = '?' .. l.call.client
  if not l.is_noted and redis.call('HGET', l.entries, note) then redis.call('HDEL', l.entries, note) end
  l.is_noted = true
end
