-- Fragment: grants a free lock to the next waiter. Expects the local `lock` (its key), `lock_deleted` (whether this script has
-- deleted the lock), and what `queue.lua` and `fence.lua` expect. Numbers are passed on as strings, because formatting one
-- costs more than most commands.

--@include queue

-- Removes a client's entries behind `score`, and its marked entry last, because that entry shows the next call that the
-- client must be purged. If the work runs out, the mark's score becomes the place up to which the purge is done.
local function purge(client_id, marked_owner, score)
  while work_left > 0 do
    local owners = redis.call('ZRANGE', queue, '(' .. score, '+inf', 'BYSCORE',
      'LIMIT', 0, math.min(work_left, SLICE), 'WITHSCORES')
    if not owners[1] then
      remove(marked_owner)
      work_left = work_left - REMOVAL_COST
      return
    end
    for i = 1, #owners, 2 do
      if work_left <= 0 then break end
      score = owners[i + 1]
      if client_of(owners[i]) == client_id then
        remove(owners[i])
        work_left = work_left - REMOVAL_COST
      else
        work_left = work_left - 1
      end
    end
  end
  redis.call('DEL', lock) -- it is free already; after a write that is allowed under OOM, the next write is allowed too
  redis.call('ZADD', queue, '-' .. score, marked_owner)
end

--@include fence

-- Writes the lock, after all other writes. `hold_ttl` is the TTL of this write, `ttl` the longest that the holder may set.
local function write_lock(owner, token, hold_ttl, ttl, name)
  redis.call('SET', lock, '2 ' .. owner .. ' ' .. token .. ' ' .. ttl .. ' ' .. now_text .. ' ' .. name,
    'PXAT', tonumber(string.sub(now_text, 1, -4)) + hold_ttl)
end

local function grant(owner, score, lease, ttl, name)
  local short_lease = grant_lease(tonumber(lease))
  local token = next_token()
  if not lock_deleted then redis.call('DEL', lock) end -- the write that a refusing server rejects, before anything is changed
  set_fence(token, true) -- the head stays in the queue until it confirms
  redis.call('ZADD', queue, '-' .. score, owner) -- after writes that may be denied: a mark without a lock means a dead client
  write_lock(owner, token, short_lease + 250, ttl, name)
  -- After all writes, because the server may deny any of them to this user, and a grant without a lock is not a grant.
  redis.pcall('PUBLISH', channels .. client_of(owner),
    owner .. ' ' .. token .. ' ' .. now_text .. ' ' .. short_lease .. ' ' .. lock)
end

-- Grants the free lock to the first live waiter. `head` is the head of the queue, if the caller has just read it.
-- Returns 'granted', 'mine' (the head is `caller`, which takes the lock itself), 'free' (there are no waiters) or 'more'
-- (too many dead entries for one script).
local function grant_next(caller, head)
  while work_left > 0 do
    head = head or redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')
    local owner, score = head[1], head[2]
    if not owner then return 'free' end
    head = nil
    local client_id = client_of(owner)
    if string.byte(score) == 45 then -- '-': marked
      -- The lock was granted, not confirmed, and has expired, so this client does not respond.
      if client_id == client then
        remove(owner)
        work_left = work_left - REMOVAL_COST
      else
        purge(client_id, owner, string.sub(score, 2))
      end
    elseif owner == caller then
      return 'mine'
    else
      local entry = redis.call('HGET', entries, owner)
      local deadline, lease, ttl, name = string.match(entry or '', '^(%d+) (%d+) (%d+) (.*)$')
      if deadline and tonumber(deadline) >= now and is_alive(client_id) then
        grant(owner, score, lease, ttl, name)
        return 'granted'
      end
      remove(owner)
      work_left = work_left - REMOVAL_COST
    end
  end
  return 'more'
end

-- Shortens a TTL that exceeds what the holder can have set, as after a backward step of the server's clock.
local function clamp_ttl(owner, ttl)
  local remaining = redis.call('PTTL', lock)
  local max_ttl = tonumber(ttl)
  local score = redis.call('ZSCORE', queue, owner)
  if score and tonumber(score) < 0 then
    local lease = string.match(redis.call('HGET', entries, owner) or '', '^%d+ (%d+)')
    if lease then max_ttl = math.min(max_ttl, grant_lease(tonumber(lease)) + 250) end
  end
  if remaining < 0 or remaining > max_ttl then
    redis.call('PEXPIRE', lock, string.format('%.0f', max_ttl))
    remaining = max_ttl
  end
  return remaining
end
