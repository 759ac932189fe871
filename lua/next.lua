-- Fragment: who is next once the lock is free. Expects the locals `lock, queue, entries, fence` (keys),
-- `last` (what this script read or wrote last at the fence, nil if that was no text), `open` (whether this script has
-- freed the lock), `client` (the calling client's uuid), `channels` (prefix of client channels), `fence_ttl` (ms), the
-- server's time in µs as a text, `stamp`, and as a number, `now`; and `work` and `alive`, nil at first, which all locks
-- of a script share. Texts are passed on as they are: formatting a number costs more than most commands.

-- What one script may do in queues, so that it does not keep the server: to look at an entry costs one, to remove
-- it five. Each lock of a look has a little, so that none waits for the dead of another. The next call goes on.
local WORK, LEAST, REMOVAL, SLICE = 500, 10, 5, 100
work = math.max(work or WORK, LEAST)

-- Clients of which it is known whether they are there. The caller is.
alive = alive or { [client] = true }

local function remove(owner)
  redis.call('ZREM', queue, owner)
  redis.call('HDEL', entries, owner)
end

local function client_of(owner)
  return string.match(owner, '^[^:]+')
end

-- A client that nobody tells anything, and that looks instead: its name is a digit longer. Its entries' deadlines are
-- near, and each look moves them: they say whether it lives.
local function is_polling(whose)
  return #whose == 33
end

local function soon()
  return string.format('%.0f', now + 1500000) -- three looks
end

local function is_alive(whose)
  if is_polling(whose) then return true end
  if alive[whose] == nil then
    -- NUMSUB and not PUBLISH's count, which lies when somebody has PSUBSCRIBE *.
    local subscribers = redis.pcall('PUBSUB', 'NUMSUB', channels .. whose)
    alive[whose] = subscribers.err ~= nil or subscribers[2] > 0
  end
  return alive[whose]
end

-- The lease (ms) of a grant that is not confirmed yet: at most a second. The key's TTL is 250 ms longer.
local function grant_lease(lease)
  return math.min(lease, 1000)
end

-- Removes what a client has in the queue behind a place, its marked entry last: while that one stays, the next
-- call knows that the client is to be purged. The mark then names the place up to which that is done.
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
  redis.call('DEL', lock) -- it is free; after a write that is legal without memory, the next is, too
  redis.call('ZADD', queue, '-' .. place, marked)
end

-- What stands at the fence. MGET is silent about a value of another type, GET refuses it.
local function last_token()
  last = last or redis.call('GET', fence)
  return last
end

-- The next token, as a text.
local function next_token()
  local previous = last_token()
  if not previous then return stamp end
  local number = tonumber(string.match(previous, '^(%d+)%+?$'))
  if not number then error('FOREIGN the fence key holds a foreign value') end
  if number < now then return stamp end
  return string.format('%.0f', number + 1)
end

-- Until `fence_ttl` after the server's clock has reached the token: while it is kept, tokens rise whatever the
-- clock does. The mark, a plus sign, says that somebody waits.
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

-- Writes the lock, last of all writes. `hold` is the TTL of this write, `ttl` the longest the holder may set.
local function take(owner, token, hold, ttl, name)
  redis.call('SET', lock, '2 ' .. owner .. ' ' .. token .. ' ' .. ttl .. ' ' .. stamp .. ' ' .. name,
    'PXAT', tonumber(string.sub(stamp, 1, -4)) + hold)
end

local function grant(owner, order, lease, ttl, name)
  local short = grant_lease(tonumber(lease))
  local token = next_token()
  if not open then redis.call('DEL', lock) end -- the write that a refusing server rejects, before anything is changed
  keep_fence(token, true) -- the head stays in the queue until it confirms
  redis.call('ZADD', queue, '-' .. order, owner) -- after what may be denied: a mark without a lock is a dead client's
  take(owner, token, short + 250, ttl, name)
  -- After all writes: each of them may be denied to this user, and a grant without its lock is none.
  redis.pcall('PUBLISH', channels .. client_of(owner),
    owner .. ' ' .. token .. ' ' .. stamp .. ' ' .. short .. ' ' .. lock)
end

-- Hands the free lock to the first live waiter. `head` is the queue's, if the caller has just read it.
-- Returns 'granted', 'mine' (the head is `me`, which takes the lock itself), 'free' (nobody waits) or 'more'
-- (too many dead entries for one script).
local function drive(me, head)
  while work > 0 do
    head = head or redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')
    local owner, order = head[1], head[2]
    if not owner then return 'free' end
    head = nil
    local whose = client_of(owner)
    if string.byte(order) == 45 then -- '-': marked
      -- Granted and never confirmed, and the lock has expired: that client is not answering.
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

-- A lock that outlives what its holder could have asked for: the server's clock stepped back.
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
