-- Fragment: the holders of a counted lock, each with a weight. The hash at the lock's key has a field for each holder, its record
-- 'flag expires ttl token weight since name' (flag g: granted, not confirmed; h: held; k: kept by min_hold; r: revoked), and
-- `state`, '3 kind capacity used phase next at': the capacity of the last call that was granted, the sum of the weights, the read
-- phase, 'token:replication id' or 0, a lower bound of all `expires`, and an upper bound of the times at which a record was written. Each call
-- is granted by its own capacity.
-- The queue and its entries have each other's names, so that the scripts of a mutex fail at these keys (K1).
local QUEUE, ENTRIES = 'entry', 'queue'
local RECORD, NEVER = '^(%l) (%d+) (%d+) ((%d+) (%d+) .*)$', '9999999999999999'

local function parse(record)
  local flag, expires, ttl, token, weight, since, name = string.match(record, '^(%l) (%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
  return flag and { flag = flag, expires = expires, ttl = ttl, token = token, weight = tonumber(weight), since = since, name = name }
end

local function state(l)
  if not l.kind then return '' end
  return table.concat({ 3, l.kind, l.capacity, l.used, l.phase, l.next_expiry, l.at }, ' ')
end

local function write_state(l)
  if l.used == 0 then
    redis.call('DEL', l.lock)
    l.kind, l.phase, l.next_expiry = nil, '0', NEVER
  else
    redis.call('HSET', l.lock, 'state', state(l))
  end
end

-- The record goes first: a script that fails between the two leaves `used` too high, never too low.
local function drop(l, owner, weight)
  l.used = l.used - weight
  if l.used > 0 then redis.call('HDEL', l.lock, owner) end
  write_state(l)
end

-- Writes a hold for `ttl` ms, and the state in the same command. PEXPIRE goes first, because it is allowed under OOM, and
-- after it the HSET is allowed, too.
local function put(l, owner, flag, ttl, hold)
  local expires = after(l.call, ttl)
  if expires < l.next_expiry then l.next_expiry = expires end
  local remaining = redis.call('PTTL', l.lock)
  local lock_ttl = math.max(remaining, ttl + 100) -- the key outlives its last record
  if remaining >= 0 then redis.call('PEXPIRE', l.lock, lock_ttl) end
  redis.call('HSET', l.lock, owner, table.concat({ flag, expires, ttl, hold.token, hold.weight, hold.since, hold.name }, ' '),
    'state', state(l))
  if remaining < 0 then redis.call('PEXPIRE', l.lock, lock_ttl) end
end

-- Removes expired holders, shortens records that a backward step of the clock has lengthened, and recounts the others.
local function sweep(l)
  local call = l.call
  redis.call('HDEL', l.lock, '-') -- removes nothing: a server that rejects writes stops here
  local fields = redis.call('HGETALL', l.lock)
  l.used, l.next_expiry, l.at = 0, NEVER, call.now_text
  for i = 1, #fields, 2 do
    local flag, expires, ttl, rest, _, weight = string.match(fields[i + 1], RECORD)
    if flag and expires <= call.now_text then
      redis.call('HDEL', l.lock, fields[i])
    elseif flag then
      local latest = after(call, ttl)
      if expires > latest then
        expires = latest
        redis.call('HSET', l.lock, fields[i], flag .. ' ' .. expires .. ' ' .. ttl .. ' ' .. rest)
      end
      l.used = l.used + weight
      if expires < l.next_expiry then l.next_expiry = expires end
    end
  end
  write_state(l)
end

local function find_hold(l, owner)
  return parse(redis.call('HGET', l.lock, owner) or '')
end

-- Reads the state, and returns the hold of `owner`. A mutex's key fails here, before anything was written.
local function read_state(l, owner)
  local found = redis.call('HMGET', l.lock, 'state', owner)
  local value, now_text = found[1] or redis.call('EXISTS', l.lock) == 1 and '', l.call.now_text
  l.phase, l.next_expiry, l.at = '0', NEVER, now_text
  if not value then return end
  local kind, capacity, used, phase, next_expiry, at = string.match(value, '^3 (%l+) (%d+) (%d+) (%S+) (%d+) (%d+)$')
  if not kind then error('FOREIGN the lock key holds a foreign value') end
  l.kind, l.capacity, l.used, l.phase, l.next_expiry = kind, tonumber(capacity), tonumber(used), phase, next_expiry
  if now_text < next_expiry and now_text >= at then return parse(found[2] or '') end
  sweep(l)
  return find_hold(l, owner)
end

-- Next to the holders of a counted lock another may fit.
local function is_full()
  return false
end

local function all_holds(l)
  local fields, found = redis.call('HGETALL', l.lock), {}
  for i = 1, #fields, 2 do found[fields[i]] = parse(fields[i + 1]) end
  return found
end

-- The first write before others, as in `sweep`. After it the others are allowed under OOM.
local function begin_write(l)
  redis.call('HDEL', l.lock, '-')
end

local function mark_revoked(l, owner, hold)
  redis.call('HSET', l.lock, owner, table.concat({ 'r', hold.expires, hold.ttl, hold.token, hold.weight, hold.since, hold.name }, ' '),
    'state', state(l))
end

-- Returns the token of a new hold: that of the read phase, or a new one, which begins a phase if the hold is a reader's. A phase
-- is of one primary. The next one may have lost a writer whose token is above that of the phase.
local function token_for(l, weight, may_wait)
  local is_reader = l.kind == 'rw' and weight < l.capacity
  local info = is_reader and redis.pcall('INFO', 'replication')
  local primary = ':' .. (type(info) == 'string' and string.match(info, 'master_replid:(%x+)') or '')
  local token = is_reader and string.match(l.phase, '^(%d+)' .. primary .. '$')
  if token then return token end
  token = next_token(l)
  set_fence(l, token, may_wait)
  l.phase = is_reader and token .. primary or '0'
  return token
end

-- Appends fields of the lock, for up to about 16 holders.
local function with_holders(l, reply)
  for _, field in ipairs(redis.call('HSCAN', l.lock, '0', 'COUNT', '32')[2]) do reply[#reply + 1] = field end
  return reply
end

-- Returns the state and the fields, without a change.
local function describe(l)
  local fields = redis.call('HGETALL', l.lock)
  return fields[1] and (redis.call('HGET', l.lock, 'state') or '?') or '', fields
end
