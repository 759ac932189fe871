-- Fragment: a lock of which several holders each hold a weight. The hash at `lock` has a field for each holder, its record
-- 'flag expires ttl token weight since name' (flag g: granted, not confirmed; h: held; k: kept by min_hold; r: revoked), and
-- `state`, '3 kind capacity used phase next at': the capacity of the last call that was granted, the sum of the weights, the token
-- of the read phase or 0, a lower bound of all `expires`, and an upper bound of the times at which a record was written. Each call
-- is granted by its own capacity. Expects the local `lock` (its key), and what `queue.lua` and `fence.lua` expect.
--
local RECORD, NEVER = '^(%l) (%d+) (%d+) ((%d+) (%d+) .*)$', '9999999999999999'
local kind, capacity, used, phase, next_expiry, at = nil, nil, 0, '0', NEVER, now_text
local my_token

local function state()
  return table.concat({ 3, kind, capacity, used, phase, next_expiry, at }, ' ')
end

local function write_state()
  if used == 0 then
    redis.call('DEL', lock)
    kind, phase, next_expiry = nil, '0', NEVER
  else
    redis.call('HSET', lock, 'state', state())
  end
end

-- Removes a holder. The record goes first: a script that fails between the two leaves `used` too high, never too low.
local function drop(owner, weight)
  used = used - weight
  if used > 0 then redis.call('HDEL', lock, owner) end
  write_state()
end

-- Writes a holder's record and the state in one command. PEXPIRE goes first, because it is allowed under OOM, and after it
-- the HSET is allowed, too.
local function put(owner, flag, ttl, rest)
  local expires = after(ttl)
  if expires < next_expiry then next_expiry = expires end
  local remaining = redis.call('PTTL', lock)
  local lock_ttl = math.max(remaining, ttl + 100) -- the key outlives its last record
  if remaining >= 0 then redis.call('PEXPIRE', lock, lock_ttl) end
  redis.call('HSET', lock, owner, flag .. ' ' .. expires .. ' ' .. ttl .. ' ' .. rest, 'state', state())
  if remaining < 0 then redis.call('PEXPIRE', lock, lock_ttl) end
end

-- Removes expired holders, shortens records that a backward step of the clock has lengthened, and recounts the others.
local function sweep()
  redis.call('HDEL', lock, '-') -- removes nothing: a server that rejects writes stops here
  local fields = redis.call('HGETALL', lock)
  used, next_expiry, at = 0, NEVER, now_text
  for i = 1, #fields, 2 do
    local flag, expires, ttl, rest, _, weight = string.match(fields[i + 1], RECORD)
    if flag and expires <= now_text then
      redis.call('HDEL', lock, fields[i])
    elseif flag then
      local latest = after(ttl)
      if expires > latest then
        expires = latest
        redis.call('HSET', lock, fields[i], flag .. ' ' .. expires .. ' ' .. ttl .. ' ' .. rest)
      end
      used = used + weight
      if expires < next_expiry then next_expiry = expires end
    end
  end
  write_state()
end

-- Reads the state, and returns the record of `owner`. A mutex's key fails here, before anything was written.
local function read_state(owner)
  local found = redis.call('HMGET', lock, 'state', owner)
  local value = found[1] or redis.call('EXISTS', lock) == 1 and ''
  if not value then return end
  kind, capacity, used, phase, next_expiry, at = string.match(value, '^3 (%l+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
  if not kind then error('FOREIGN the lock key holds a foreign value') end
  capacity, used = tonumber(capacity), tonumber(used)
  if now_text < next_expiry and now_text >= at then
    at = now_text
    return found[2]
  end
  sweep()
  return redis.call('HGET', lock, owner)
end

-- Returns the token of a new hold: that of the read phase, or a new one, which begins a phase if the hold is a reader's.
local function token_for(weight, has_queue)
  local is_reader = kind == 'rw' and weight < capacity
  if is_reader and phase ~= '0' then return phase end
  local token = next_token()
  set_fence(token, has_queue)
  phase = is_reader and token or '0'
  return token
end

-- Grants to the head of the queue while it fits. A grant to `caller` is for the full lease, and its token is `my_token`.
-- Returns 'free' (there are no waiters), 'full' (the head is alive and does not fit) or 'more' (the next call continues).
local function grant_next(caller)
  while work_left > 0 do
    local owner = redis.call('ZRANGE', queue, 0, 0)[1]
    if not owner then
      redis.call('DEL', entries)
      return 'free'
    end
    local client_id = client_of(owner)
    local entry = redis.call('HMGET', entries, owner, '?' .. client_id)
    local deadline, lease, ttl, its_kind, its_capacity, weight, name =
      string.match(entry[1] or '', '^(%d+) (%d+) (%d+) (%l+) (%d+) (%d+) (.*)$')
    weight, its_capacity, work_left = tonumber(weight), tonumber(its_capacity), work_left - ENTRY_COST
    if not deadline or tonumber(deadline) < now or not is_responding(client_id, entry[2])
      or weight > its_capacity or kind and its_kind ~= kind then
      remove(owner)
    elseif used + weight > its_capacity then
      return 'full'
    else
      kind, capacity = its_kind, its_capacity
      redis.call('HDEL', lock, '-') -- as in `sweep`, and after it the other writes are allowed under OOM
      local token = token_for(weight, true)
      local rest = token .. ' ' .. weight .. ' ' .. now_text .. ' ' .. name
      used = used + weight
      if owner == caller then
        remove(owner)
        put(owner, 'h', tonumber(ttl), rest)
        my_token = token
      else
        local short_lease = grant_lease(tonumber(lease))
        redis.call('HSET', entries, '?' .. client_id, after(short_lease + 250)) -- before the entry goes: the hash keeps its TTL
        remove(owner)
        put(owner, 'g', short_lease + 250, rest)
        redis.pcall('PUBLISH', channels .. client_id,
          'counted ' .. owner .. ' ' .. token .. ' ' .. now_text .. ' ' .. short_lease .. ' ' .. lock)
      end
    end
  end
  return 'more'
end

-- Appends fields of the lock, for up to about 16 holders.
local function with_holders(reply)
  for _, field in ipairs(redis.call('HSCAN', lock, '0', 'COUNT', '32')[2]) do reply[#reply + 1] = field end
  return reply
end
