-- Fragment: the waiters of a lock, and their clients. `begin_call` and `open_lock` make what the functions of all fragments
-- take: a table about this script's call, and one about a lock.
--
-- Limits the work that one script does on queues, so that it does not block the server: an entry costs 5 to serve or remove.
-- Each lock of a queue check has at least `MIN_WORK`: none waits for another's dead waiters. The next call continues.
local WORK_LIMIT, MIN_WORK, ENTRY_COST, SLICE = 500, 10, 5, 100

local function server_time()
  local time = redis.call('TIME')
  return time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
end

-- The caller's uuid, the prefix of client channels, the TTL of a fence (ms), and the server's time in µs.
local function begin_call(client, channels, fence_ttl, now_text)
  return { client = client, channels = channels, fence_ttl = fence_ttl, now_text = now_text, now = tonumber(now_text),
    work_left = WORK_LIMIT, alive = { [client] = true } } -- whether each client is alive, as far as it is known
end

-- The keys of the lock and its fence, the names of the queue's two keys, and the fence's value if it was read. `names` has
-- the length of the namespace, and the words that replace `lock` in the lock's key. So all keys are in the same slot.
local function open_lock(call, lock, fence, names, fence_value)
  local length, queue, entries = string.match(names, '^(%d+) (%l+) (%l+)$')
  local function sibling(name) return string.sub(lock, 1, length) .. name .. string.sub(lock, length + 5) end
  call.work_left = math.max(call.work_left, MIN_WORK)
  return { call = call, lock = lock, queue = sibling(queue), entries = sibling(entries), fence = fence,
    fence_value = fence_value, used = 0 }
end

local function after(call, ms)
  return string.format('%.0f', call.now + ms * 1000)
end

local function remove(l, owner)
  redis.call('ZREM', l.queue, owner)
  redis.call('HDEL', l.entries, owner)
end

local function client_of(owner)
  return string.match(owner, '^[^:]+')
end

-- Returns true for a client that receives no pushes and polls instead. Its uuid is one digit longer. The deadlines of
-- its entries are near, and each of its queue checks extends them, so they show whether it is alive.
local function is_polling(client_id)
  return #client_id == 33
end

local function polling_deadline(call)
  return after(call, 1500) -- three queue checks
end

local function is_alive(call, client_id)
  if is_polling(client_id) then return true end
  if call.alive[client_id] == nil then
    -- NUMSUB, because the count that PUBLISH returns includes clients that PSUBSCRIBE to *.
    local subscribers = redis.pcall('PUBSUB', 'NUMSUB', call.channels .. client_id)
    call.alive[client_id] = subscribers.err ~= nil or subscribers[2] > 0
  end
  return call.alive[client_id]
end

-- Returns the lease (ms) of a grant before its confirmation: at most a second. The grant ends 250 ms later.
local function grant_lease(lease)
  return math.min(lease, 1000)
end

-- While there is a queue, the hash of its entries also has a field '?client' for each client that was granted the lock
-- and has not been heard of since: when its grant ends.
--
-- Returns true if a client receives grants: it is alive, and it did not let its last grant expire in silence.
local function is_responding(call, client_id, granted_until)
  return not (granted_until and granted_until < call.now_text) and is_alive(call, client_id)
end

-- Notes that the calling client responds.
local function note_caller(l)
  redis.call('HDEL', l.entries, '?' .. l.call.client)
end
