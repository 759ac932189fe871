-- Fragment: grants a free lock to the next waiter. Expects the local `lock` (its key), `lock_deleted` (whether this script has
-- deleted the lock), and what `queue.lua` and `fence.lua` expect. Numbers are passed on as strings, because formatting one
-- costs more than most commands.

--@include queue

--@include fence

local my_token

-- Writes the lock, after all other writes. `hold_ttl` is the TTL of this write, `ttl` the longest that the holder may set.
local function write_lock(owner, token, hold_ttl, ttl, name)
  redis.call('SET', lock, '2 ' .. owner .. ' ' .. token .. ' ' .. ttl .. ' ' .. now_text .. ' ' .. name,
    'PXAT', tonumber(string.sub(now_text, 1, -4)) + hold_ttl)
end

-- Removes the head of the queue, which is granted the lock with this token. If it is the last waiter, the queue ends, and
-- nothing is noted about its client.
local function take_head(owner, token, has_more, granted_until)
  if not lock_deleted then redis.call('DEL', lock) end -- a server that rejects writes stops here, before anything is changed
  set_fence(token, has_more)
  if not has_more then
    redis.call('DEL', queue, entries)
    return
  end
  if granted_until then redis.call('HSET', entries, '?' .. client_of(owner), granted_until) end
  remove(owner)
end

-- Grants the free lock to the first waiter that is served. If that is `caller`, the grant is for the full lease, and its token is
-- `my_token`.
-- Returns 'granted', 'free' (there are no waiters) or 'more' (too many dead entries for one script).
local function grant_next(caller)
  while work_left > 0 do
    local heads = redis.call('ZRANGE', queue, 0, 1)
    local owner, has_more = heads[1], heads[2] ~= nil
    if not owner then
      redis.call('DEL', entries)
      return 'free'
    end
    local client_id = client_of(owner)
    local entry = redis.call('HMGET', entries, owner, '?' .. client_id)
    local deadline, lease, ttl, name = string.match(entry[1] or '', '^(%d+) (%d+) (%d+) (.*)$')
    work_left = work_left - ENTRY_COST
    if not deadline or tonumber(deadline) < now or not is_responding(client_id, entry[2]) then
      remove(owner)
    elseif owner == caller then
      my_token = next_token()
      take_head(owner, my_token, has_more)
      write_lock(owner, my_token, tonumber(ttl), ttl, name)
      return 'granted'
    else
      local short_lease, token = grant_lease(tonumber(lease)), next_token()
      take_head(owner, token, has_more, after(short_lease + 250))
      write_lock(owner, token, short_lease + 250, ttl, name)
      -- After all writes, because the server may deny any of them to this user, and a grant without a lock is not a grant.
      redis.pcall('PUBLISH', channels .. client_id, owner .. ' ' .. token .. ' ' .. now_text .. ' ' .. short_lease .. ' ' .. lock)
      return 'granted'
    end
  end
  return 'more'
end

-- Shortens a TTL that exceeds what the holder can have set, as after a backward step of the server's clock. A client with a
-- note has not confirmed its grant.
local function clamp_ttl(owner, ttl)
  local remaining, max_ttl = redis.call('PTTL', lock), tonumber(ttl)
  if redis.call('HGET', entries, '?' .. client_of(owner)) then max_ttl = math.min(max_ttl, grant_lease(max_ttl) + 250) end
  if remaining < 0 or remaining > max_ttl then
    redis.call('PEXPIRE', lock, string.format('%.0f', max_ttl))
    remaining = max_ttl
  end
  return remaining
end
