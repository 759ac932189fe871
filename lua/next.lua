-- Fragment: grants a lock to its next waiters.
--@include queue
--@include fence
--@include holders

-- Grants to the head of the queue while it fits. A grant to `caller` is for the full lease, and its token is `l.my_token`.
-- Returns 'free' (there are no waiters), 'blocked' (the head is alive and does not fit) or 'more' (the next call continues).
local function grant_next(l, caller)
  local call = l.call
  while call.work_left > 0 do
    if is_full(l) then return 'blocked' end
    local heads = redis.call('ZRANGE', l.queue, 0, 1)
    local owner, has_more = heads[1], heads[2] ~= nil
    if not owner then
      redis.call('DEL', l.entries)
      return 'free'
    end
    local client_id = client_of(owner)
    local entry = redis.call('HMGET', l.entries, owner, '?' .. client_id)
    local deadline, ttl, kind, capacity, weight, name =
      string.match(entry[1] or '', '^(%d+) (%d+) (%l+) (%d+) (%d+) (.*)$')
    -- It let its last grant expire. The calling client responds.
    local is_silent = entry[2] and entry[2] < call.now_text and client_id ~= call.client
    weight, capacity, call.work_left = tonumber(weight), tonumber(capacity), call.work_left - ENTRY_COST
    if not deadline or tonumber(deadline) < call.now or is_silent or not is_alive(l, client_id, name)
      or weight > capacity or l.kind and kind ~= l.kind then
      remove(l, owner)
    elseif l.used + weight > capacity then
      return 'blocked'
    else
      begin_write(l)
      l.kind, l.capacity, l.used = kind, capacity, l.used + weight
      local token = token_for(l, weight, has_more)
      local hold = { token = token, weight = weight, ttl = ttl, since = call.now_text, name = name }
      local short_lease = math.min(ttl - 250, 1000) -- before its confirmation. Its grace period is 250 ms
      if has_more then
        remove(l, owner)
        if owner ~= caller then redis.call('HSET', l.entries, '?' .. client_id, call.now + short_lease * 1000 + 250000) end
      else
        redis.call('DEL', l.queue, l.entries)
        l.is_noted = true
      end
      if owner == caller then
        put(l, owner, 'h', tonumber(ttl), hold)
        l.my_token = token
      else
        put(l, owner, 'g', short_lease + 250, hold)
        -- After all writes, because the server may deny any of them to this user, and a grant without a lock is not a grant.
        redis.pcall('PUBLISH', l.channels .. client_id, kind .. ' ' .. owner .. ' ' .. token .. ' ' .. call.now_text .. ' ' ..
          short_lease .. ' ' .. l.lock)
      end
      if not has_more then return 'free' end
    end
  end
  return 'more'
end

-- Grants to the next waiters of a lock, if there may be any.
local function serve(l, caller)
  if not has_queue(l) then return 'free' end
  local outcome = grant_next(l, caller)
  note_caller(l)
  return outcome
end
