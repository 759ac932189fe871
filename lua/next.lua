-- Fragment: grants a free lock to the next waiter. Expects the locals `lock, queue, entries, fence` (keys), `last` (the
-- fence's value as last read or written, nil if it was no text), `open` (whether this script has deleted the lock),
-- `client` (the caller's uuid), `channels` (prefix of client channels), `fence_ttl` (ms), the server's time in µs, as
-- text (`stamp`) and number (`now`), and `work` and `alive`, nil at first and shared by all locks of a script. Numbers
-- are passed on as texts, because formatting one costs more than most commands.

-- Limits the work of one script in queues, so that it does not block the server: an entry costs 1 to read, 5 to remove.
-- Each lock of a look has at least `LEAST`, so that none waits for another's dead waiters. The next call continues.
local WORK, LEAST, REMOVAL, SLICE = 500, 10, 5, 100
work = math.max(work or WORK, LEAST)

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
local function is_polling(whose)
  return #whose == 33
end

local function soon()
  return string.format('%.0f', now + 1500000) -- three queue checks
end

local function is_alive(whose)
  if is_polling(whose) then return true end
  if alive[whose] == nil then
    -- NUMSUB, because the count that PUBLISH returns includes clients that PSUBSCRIBE to *.
    local subscribers = redis.pcall('PUBSUB', 'NUMSUB', channels .. whose)
    alive[whose] = subscribers.err ~= nil or subscribers[2] > 0
  end
  return alive[whose]
end

-- Returns the lease (ms) of a grant before its confirmation: at most a second. The key's TTL is 250 ms longer.
local function grant_lease(lease)
  return math.min(lease, 1000)
end

-- Removes a client's entries behind `place`, and its marked entry last, because that entry shows the next call that the
-- client must be purged. If the work runs out, the mark's score becomes the place up to which the purge is done.
local function purge(whose, marked, place)
  while work > 0 do
    local owners = redis.call('ZRANGE', queue, '(' .. place, '+inf', 'BYSCORE',
      'LIMIT', 0, math.min(work, SLICE), 'WITHSCORES')
    if not owners[1] then
      remove(marked)
      work = work - REMOVAL
      return
    end
    for i = 1, #owners, 2 do
      if work <= 0 then break end
      place = owners[i + 1]
      if client_of(owners[i]) == whose then
        remove(owners[i])
        work = work - REMOVAL
      else
        work = work - 1
      end
    end
  end
  redis.call('DEL', lock) -- it is free already; after a write that is allowed under OOM, the next write is allowed too
  redis.call('ZADD', queue, '-' .. place, marked)
end

-- Returns the fence's value. MGET returns nil for a value of another type, and GET fails.
local function last_token()
  last = last or redis.call('GET', fence)
  return last
end

-- Returns the next token, as a text.
local function next_token()
  local previous = last_token()
  if not previous then return stamp end
  local number = tonumber(string.match(previous, '^(%d+)%+?$'))
  if not number then error('FOREIGN the fence key holds a foreign value') end
  if number < now then return stamp end
  return string.format('%.0f', number + 1)
end

-- Keeps the fence until `fence_ttl` after the server's clock has reached the token. While the fence exists, tokens rise
-- whatever the clock does. The mark, a plus sign, means that there may be a queue.
local function keep_fence(token, waited_for)
  local ttl = fence_ttl
  if token ~= stamp then ttl = ttl + math.ceil((tonumber(token) - now) / 1000) end
  last = waited_for and token .. '+' or token
  redis.call('SET', fence, last, 'PX', ttl)
end

local function mark_fence()
  if last_token() and string.find(last, '^%d+$') then
    last = last .. '+'
    redis.call('SET', fence, last, 'KEEPTTL')
  end
end

-- Writes the lock, after all other writes. `hold` is the TTL of this write, `ttl` the longest that the holder may set.
local function take(owner, token, hold, ttl, name)
  redis.call('SET', lock, '2 ' .. owner .. ' ' .. token .. ' ' .. ttl .. ' ' .. stamp .. ' ' .. name,
    'PXAT', tonumber(string.sub(stamp, 1, -4)) + hold)
end

local function grant(owner, order, lease, ttl, name)
  local short = grant_lease(tonumber(lease))
  local token = next_token()
  if not open then redis.call('DEL', lock) end -- the write that a refusing server rejects, before anything is changed
  keep_fence(token, true) -- the head stays in the queue until it confirms
  redis.call('ZADD', queue, '-' .. order, owner) -- after writes that may be denied: a mark without a lock means a dead client
  take(owner, token, short + 250, ttl, name)
  -- After all writes, because the server may deny each of them to this user, and a grant without a lock is none.
  redis.pcall('PUBLISH', channels .. client_of(owner),
    owner .. ' ' .. token .. ' ' .. stamp .. ' ' .. short .. ' ' .. lock)
end

-- Grants the free lock to the first live waiter. `head` is the head of the queue, if the caller has just read it.
-- Returns 'granted', 'mine' (the head is `me`, which takes the lock itself), 'free' (there are no waiters) or 'more'
-- (too many dead entries for one script).
local function drive(me, head)
  while work > 0 do
    head = head or redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')
    local owner, order = head[1], head[2]
    if not owner then return 'free' end
    head = nil
    local whose = client_of(owner)
    if string.byte(order) == 45 then -- '-': marked
      -- The lock was granted, not confirmed, and has expired, so this client does not respond.
      if whose == client then
        remove(owner)
        work = work - REMOVAL
      else
        purge(whose, owner, string.sub(order, 2))
      end
    elseif owner == me then
      return 'mine'
    else
      local entry = redis.call('HGET', entries, owner)
      local deadline, lease, ttl, name = string.match(entry or '', '^(%d+) (%d+) (%d+) (.*)$')
      if deadline and tonumber(deadline) >= now and is_alive(whose) then
        grant(owner, order, lease, ttl, name)
        return 'granted'
      end
      remove(owner)
      work = work - REMOVAL
    end
  end
  return 'more'
end

-- Shortens a TTL that exceeds what the holder can have set, as after a backward step of the server's clock.
local function clamp(owner, ttl)
  local left = redis.call('PTTL', lock)
  local limit = tonumber(ttl)
  local score = redis.call('ZSCORE', queue, owner)
  if score and tonumber(score) < 0 then
    local lease = string.match(redis.call('HGET', entries, owner) or '', '^%d+ (%d+)')
    if lease then limit = math.min(limit, grant_lease(tonumber(lease)) + 250) end
  end
  if left < 0 or left > limit then
    redis.call('PEXPIRE', lock, string.format('%.0f', limit))
    left = limit
  end
  return left
end
