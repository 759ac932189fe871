-- Fragment: gives this node's vote. Expects the locals `lock, queue, entries, fence` (keys), `client` (caller's uuid),
-- `channels` (prefix of client channels), `fence_ttl` (ms), and the server's time in µs as `stamp` (text) and `now`.

-- Bounds the entries that one script checks, so that it does not block the server. The next call continues.
local WORK, SLICE = 500, 100
-- Whether each client is alive, as far as it is known. The caller is.
local alive = { [client] = true }

-- Returns true if the owner can no longer use the lock: it was released and is kept by min_hold, or was revoked.
local function is_over(state)
  return state == 'kept' or state == 'revoked'
end

local function client_of(owner)
  return string.match(owner, '^[^:]+')
end

local function is_alive(whose)
  if alive[whose] == nil then
    -- NUMSUB, because the count that PUBLISH returns includes clients that PSUBSCRIBE to *.
    local subscribers = redis.pcall('PUBSUB', 'NUMSUB', channels .. whose)
    alive[whose] = subscribers.err ~= nil or subscribers[2] > 0
  end
  return alive[whose]
end

local function remove(owner)
  redis.call('ZREM', queue, owner)
  redis.call('HDEL', entries, owner)
end

-- Queues an owner until a second after its wait ends. `asked` has the lease, the longest TTL and the name.
local function stand(owner, ticket, asked, wait)
  redis.call('ZADD', queue, ticket, owner)
  redis.call('HSET', entries, owner, string.format('%.0f', now + (wait + 1000) * 1000) .. ' ' .. asked)
  -- The TTL exceeds the latest deadline, and a vote given just before it.
  local keep = wait + 12000
  if redis.call('PTTL', queue) < keep or redis.call('PTTL', entries) < keep then
    redis.call('PEXPIRE', queue, keep)
    redis.call('PEXPIRE', entries, keep)
  end
end

-- Returns a waiter's lease, longest TTL and name, if it still waits.
local function waiter(owner)
  local entry = redis.call('HGET', entries, owner)
  local deadline, lease, ttl, name = string.match(entry or '', '^(%d+) (%d+) (%d+) (.*)$')
  if deadline and tonumber(deadline) >= now and is_alive(client_of(owner)) then return lease, ttl, name end
end

-- Tickets are totally ordered: by their time, then by owner, in the order of a sorted set.
local function is_lower(ticket, owner, than, whose)
  ticket, than = tonumber(ticket), tonumber(than)
  return ticket < than or ticket == than and owner < whose
end

-- Returns the lease (ms) of a grant from the queue: at most a second. The key's TTL is 250 ms longer, like any vote's.
local function short_lease(lease)
  return math.min(tonumber(lease), 1000)
end

-- Keeps the fence, and so rising tokens, until `fence_ttl` after the server's clock has reached the token.
local function keep_fence(token)
  local ahead = math.max(0, math.ceil((tonumber(token) - now) / 1000))
  redis.call('SET', fence, token, 'PX', string.format('%.0f', fence_ttl + ahead))
end

-- Returns the last token that this node knows, or zero.
local function last_token()
  local last = redis.call('GET', fence) or '0'
  if not string.find(last, '^%d+$') then error('FOREIGN the fence key holds a foreign value') end
  return tonumber(last)
end

-- Gives the vote to `owner` with a token above all that the node knows, and not behind its clock. If `named` is such a
-- token, the vote is confirmed with it at once: for the `whole` TTL, or a vote's short TTL if `unasked` (given from the
-- queue). Returns the token, and 1 if the vote is confirmed.
local function vote_for(owner, ticket, lease, name, named, whole, unasked)
  local last, state, token, short = last_token(), 'vote', stamp, string.format('%.0f', short_lease(lease) + 250)
  local limit, ttl = short, short
  if named and tonumber(named) > math.max(last, now) then
    state, token, limit = 'held', named, whole
    if not unasked then ttl = whole end
  elseif last >= now then
    token = string.format('%.0f', last + 1)
  end
  redis.call('DEL', lock) -- the write that a refusing server rejects, before anything is changed
  keep_fence(token)
  remove(owner)
  redis.call('SET', lock, '3 ' .. state .. ' ' .. owner .. ' ' .. token .. ' ' .. ticket .. ' ' .. limit .. ' ' .. stamp .. ' ' .. name,
    'PX', ttl)
  return token, state == 'held' and 1 or 0
end

-- Gives the free vote to the lowest ticket with a waiting owner, and notifies that owner unless it is `me`. `named` is
-- a token for `me`, or from a releasing owner for its successor. Returns the owner, the token, and 1 if confirmed.
local function drive(me, named, whole)
  for _ = 1, WORK do
    local head = redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')
    local owner, ticket = head[1], head[2]
    if not owner then return end
    local lease, ttl, name = waiter(owner)
    if lease then
      if owner == me then return owner, vote_for(owner, ticket, lease, name, named, whole) end
      local token, is_confirmed = vote_for(owner, ticket, lease, name, me == '' and named, ttl, true)
      local what = 'vote ' .. owner .. ' ' .. token .. ' ' .. stamp .. ' '
      if is_confirmed == 1 then
        what = 'held ' .. owner .. ' ' .. token .. ' ' .. stamp .. ' ' .. short_lease(lease) .. ' '
      end
      redis.pcall('PUBLISH', channels .. client_of(owner), what .. lock)
      return owner, token, is_confirmed
    end
    remove(owner)
  end
end
