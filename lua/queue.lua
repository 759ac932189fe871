-- Fragment: the entries of a queue, and the clients that wait in it. Expects the locals `queue, entries` (keys), `client`
-- (the caller's uuid), `channels` (prefix of client channels), the server's time in µs, as number (`now`) and string (`now_text`),
-- and `work_left` and `alive`, nil at first and shared by all locks of a script.
--
-- Limits the work that one script does on queues, so that it does not block the server: an entry costs 5 to serve or remove.
-- Each lock of a queue check has at least `MIN_WORK`: none waits for another's dead waiters. The next call continues.
local WORK_LIMIT, MIN_WORK, ENTRY_COST, SLICE = 500, 10, 5, 100
work_left = math.max(work_left or WORK_LIMIT, MIN_WORK)

-- Whether each client is alive, as far as it is known. The caller is.
alive = alive or { [client] = true }

local function remove(owner)
  redis.call('ZREM', queue, owner)
  redis.call('HDEL', entries, owner)
end

local function client_of(owner)
  return string.match(owner, '^[^:]+')
end

-- Returns true for a client that receives no pushes and polls instead. Its uuid is one digit longer. The deadlines of
-- its entries are near, and each of its queue checks extends them, so they show whether it is alive.
local function is_polling(client_id)
  return #client_id == 33
end

local function polling_deadline()
  return string.format('%.0f', now + 1500000) -- three queue checks
end

local function is_alive(client_id)
  if is_polling(client_id) then return true end
  if alive[client_id] == nil then
    -- NUMSUB, because the count that PUBLISH returns includes clients that PSUBSCRIBE to *.
    local subscribers = redis.pcall('PUBSUB', 'NUMSUB', channels .. client_id)
    alive[client_id] = subscribers.err ~= nil or subscribers[2] > 0
  end
  return alive[client_id]
end

-- Returns the lease (ms) of a grant before its confirmation: at most a second. The grant ends 250 ms later.
local function grant_lease(lease)
  return math.min(lease, 1000)
end

local function after(ms)
  return string.format('%.0f', now + ms * 1000)
end

-- While there is a queue, the hash of its entries also has a field '?client' for each client that was granted the lock
-- and has not been heard of since: when its grant ends.
--
-- Returns true if a client receives grants: it is alive, and it did not let its last grant expire in silence.
local function is_responding(client_id, granted_until)
  return not (granted_until and granted_until < now_text) and is_alive(client_id)
end

-- Notes that the calling client responds.
local function note_caller()
  redis.call('HDEL', entries, '?' .. client)
end
