-- Fragment: gives this node's vote. Expects the locals `lock, queue, entries, fence` (keys), `client` (caller's uuid),
-- `channels` (prefix of client channels), `fence_ttl` (ms), and the server's time in µs as `now_text` (text) and `now`.

-- Bounds the entries that one script checks, so that it does not block the server. The next call continues.
local WORK_LIMIT, SLICE = 500, 100
-- Whether each client is alive, as far as it is known. The caller is.
local alive = { [client] = true }

-- Returns true if the owner can no longer use the lock: it was released and is kept by min_hold, or was revoked.
local function has_ended(state)
  return state == 'kept' or state == 'revoked'
end

local function client_of(owner)
  return string.match(owner, '^[^:]+')
end

local function is_alive(client_id)
  if alive[client_id] == nil then
    -- NUMSUB, because the count that PUBLISH returns includes clients that PSUBSCRIBE to *.
    local subscribers = redis.pcall('PUBSUB', 'NUMSUB', channels .. client_id)
    alive[client_id] = subscribers.err ~= nil or subscribers[2] > 0
  end
  return alive[client_id]
end

local function remove(owner)
  redis.call('ZREM', queue, owner)
  redis.call('HDEL', entries, owner)
end

-- Queues an owner until a second after its wait ends. `request` has the lease, the longest TTL and the name.
local function enqueue(owner, ticket, request, wait)
  redis.call('ZADD', queue, ticket, owner)
  redis.call('HSET', entries, owner, string.format('%.0f', now + (wait + 1000) * 1000) .. ' ' .. request)
  -- The TTL exceeds the latest deadline, and a vote given just before it.
  local queue_ttl = wait + 12000
  if redis.call('PTTL', queue) < queue_ttl or redis.call('PTTL', entries) < queue_ttl then
    redis.call('PEXPIRE', queue, queue_ttl)
    redis.call('PEXPIRE', entries, queue_ttl)
  end
end

-- Returns a waiter's lease, longest TTL and name, if it still waits.
local function live_waiter(owner)
  local entry = redis.call('HGET', entries, owner)
  local deadline, lease, ttl, name = string.match(entry or '', '^(%d+) (%d+) (%d+) (.*)$')
  if deadline and tonumber(deadline) >= now and is_alive(client_of(owner)) then return lease, ttl, name end
end

-- Tickets are totally ordered: by their time, then by owner, in the order of a sorted set.
local function is_lower(ticket, owner, other_ticket, other_owner)
  ticket, other_ticket = tonumber(ticket), tonumber(other_ticket)
  return ticket < other_ticket or ticket == other_ticket and owner < other_owner
end

-- Returns the lease (ms) of a grant from the queue: at most a second. The key's TTL is 250 ms longer, like any vote's.
local function short_lease(lease)
  return math.min(tonumber(lease), 1000)
end

-- Keeps the fence, and so rising tokens, until `fence_ttl` after the server's clock has reached the token.
local function set_fence(token)
  local ahead = math.max(0, math.ceil((tonumber(token) - now) / 1000))
  redis.call('SET', fence, token, 'PX', string.format('%.0f', fence_ttl + ahead))
end

-- Returns the last token that this node knows, or zero.
local function last_token()
  local fence_value = redis.call('GET', fence) or '0'
  if not string.find(fence_value, '^%d+$') then error('FOREIGN the fence key holds a foreign value') end
  return tonumber(fence_value)
end

-- Gives the vote to `owner` with a token above all that the node knows, and not behind its clock. If `named_token` is such a
-- token, the vote is confirmed with it at once: for the `full_ttl`, or a vote's short TTL if `is_handoff` (given from the
-- queue). Returns the token, and 1 if the vote is confirmed.
local function vote_for(owner, ticket, lease, name, named_token, full_ttl, is_handoff)
  local known_token, state, token, short_ttl = last_token(), 'vote', now_text, string.format('%.0f', short_lease(lease) + 250)
  local max_ttl, ttl = short_ttl, short_ttl
  if named_token and tonumber(named_token) > math.max(known_token, now) then
    state, token, max_ttl = 'held', named_token, full_ttl
    if not is_handoff then ttl = full_ttl end
  elseif known_token >= now then
    token = string.format('%.0f', known_token + 1)
  end
  redis.call('DEL', lock) -- the write that a refusing server rejects, before anything is changed
  set_fence(token)
  remove(owner)
  redis.call('SET', lock, '3 ' .. state .. ' ' .. owner .. ' ' .. token .. ' ' .. ticket .. ' ' .. max_ttl .. ' ' .. now_text .. ' ' .. name,
    'PX', ttl)
  return token, state == 'held' and 1 or 0
end

-- Gives the free vote to the lowest ticket with a waiting owner, and notifies that owner unless it is `caller`. `named_token` is
-- a token for `caller`, or from a releasing owner for its successor. Returns the owner, the token, and 1 if confirmed.
local function grant_next(caller, named_token, full_ttl)
  for _ = 1, WORK_LIMIT do
    local head = redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')
    local owner, ticket = head[1], head[2]
    if not owner then return end
    local lease, ttl, name = live_waiter(owner)
    if lease then
      if owner == caller then return owner, vote_for(owner, ticket, lease, name, named_token, full_ttl) end
      local token, is_confirmed = vote_for(owner, ticket, lease, name, caller == '' and named_token, ttl, true)
      local message = 'vote ' .. owner .. ' ' .. token .. ' ' .. now_text .. ' '
      if is_confirmed == 1 then
        message = 'held ' .. owner .. ' ' .. token .. ' ' .. now_text .. ' ' .. short_lease(lease) .. ' '
      end
      redis.pcall('PUBLISH', channels .. client_of(owner), message .. lock)
      return owner, token, is_confirmed
    end
    remove(owner)
  end
end
