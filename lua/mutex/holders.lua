-- Fragment: the holder of a mutex, which is a lock of capacity 1. The lock's value is '2 owner token ttl since name': the longest
-- TTL (ms) that the holder may set, and the start of the hold. A zero before the token means kept by min_hold, two mean revoked.
local QUEUE, ENTRIES = 'queue', 'entry'

local function parse(value)
  local owner, zeros, token, ttl, since, name = string.match(value, '^2 (%x+:%d+) (0*)([1-9]%d*) (%d+) (%d+) (.*)$')
  local flag = zeros == '' and 'h' or zeros == '0' and 'k' or zeros == '00' and 'r'
  if flag then
    return owner, { flag = flag, token = token, weight = 1, ttl = ttl, since = since, name = name }
  end
end

-- Reads the lock, unless its `value` was read, and returns the hold of `owner`.
local function read_state(l, owner, value)
  value = value or redis.call('GET', l.lock)
  if not value then return end
  l.value, l.holder, l.hold = value, parse(value)
  if not l.hold then error('FOREIGN the lock key holds a value that distlock did not write') end
  l.kind, l.capacity, l.used = 'mutex', 1, 1
  return l.holder == owner and l.hold or nil
end

local function state(l)
  return l.kind and l.value or ''
end

-- Next to a holder no waiter fits.
local function is_full(l)
  return l.used > 0
end

local function find_hold(l, owner)
  return l.used > 0 and l.holder == owner and l.hold
end

local function all_holds(l)
  return { [l.holder or ''] = l.hold }
end

-- Returns the remaining TTL. Shortens one that exceeds what the holder can have set, as after a backward step of the
-- server's clock. A client with a note has not confirmed its grant.
local function remaining(l)
  local left, longest = redis.call('PTTL', l.lock), tonumber(l.hold.ttl)
  if redis.call('HGET', l.entries, '?' .. client_of(l.holder)) then longest = math.min(longest, 1250) end
  if left >= 0 and left <= longest then return left end
  redis.call('PEXPIRE', l.lock, string.format('%.0f', longest))
  return longest
end

-- The first write before others, which a server that rejects writes rejects, before anything is changed. It is allowed
-- under OOM, and after it the others are, too.
local function begin_write(l)
  if l.used > 0 then
    redis.call('PEXPIRE', l.lock, math.max(remaining(l), 1))
  elseif not l.is_deleted then
    redis.call('DEL', l.lock)
  end
end

local function write_value(l, owner, flag, hold, ...)
  l.kind, l.capacity, l.used, l.holder, l.hold, hold.flag = 'mutex', 1, 1, owner, hold, flag
  local zeros = flag == 'k' and '0' or flag == 'r' and '00' or ''
  l.value = '2 ' .. owner .. ' ' .. zeros .. hold.token .. ' ' .. hold.ttl .. ' ' .. hold.since .. ' ' .. hold.name
  redis.call('SET', l.lock, l.value, ...)
end

-- Writes a hold for `ttl` ms. A kept hold can be kept for no longer.
local function put(l, owner, flag, ttl, hold)
  if flag == 'k' then hold.ttl = ttl end
  write_value(l, owner, flag, hold, 'PX', ttl)
end

local function mark_revoked(l, owner, hold)
  write_value(l, owner, 'r', hold, 'KEEPTTL')
end

local function drop(l)
  redis.call('DEL', l.lock)
  l.is_deleted = true
  l.kind, l.capacity, l.used, l.holder, l.hold = nil, nil, 0, nil, nil
end

local function token_for(l, _, may_wait)
  local token = next_token(l)
  set_fence(l, token, may_wait)
  return token
end

-- Returns a hold as the record of a counted lock.
local function record(l, hold, left)
  if left < 0 then left = hold.ttl end -- it has no TTL, until the next queue check
  return hold.flag .. ' ' .. after(l.call, left) .. ' ' .. hold.ttl .. ' ' .. hold.token .. ' 1 ' .. hold.since .. ' ' .. hold.name
end

-- Appends the holder, as a field of a counted lock, for a command that must know when the hold ends. One that waits does not
-- shorten its TTL: the waiter's next queue check, at most half a second away, does.
local function with_holders(l, reply, waits)
  if l.used > 0 and not (waits and l.hold.flag ~= 'k') then
    reply[#reply + 1] = l.holder
    reply[#reply + 1] = record(l, l.hold, waits and redis.call('PTTL', l.lock) or remaining(l))
  end
  return reply
end

-- Returns the state and the holder, without a change. The values of a quorum's servers begin with another number.
local function describe(l)
  local value = redis.call('GET', l.lock)
  local owner, hold = parse(string.gsub(value or '', '^3', '2'))
  if not hold then return value and '?' or '', {} end
  return value, { owner, record(l, hold, redis.call('PTTL', l.lock)) }
end
