-- ask: take the lock, or stand in the queue for it. Asking again with the same owner is harmless.
-- KEYS  lock queue entry fence
-- ARGV  owner, lease ms, ttl ms (lease + grace), remaining wait ms (0: never queue), apply-by µs,
--       client uuid, channel prefix, client name, max waiters
-- Reply {1, now, token} held          {2, now, value, ttl left} queued     {3, now, value, ttl left} busy
--       {4, now} applied too late     {5, now} foreign value at the lock   {6, now, value, ttl left} queue full
local lock, queue, entries, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, ttl, name = ARGV[1], ARGV[3], ARGV[8]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if now > tonumber(ARGV[5]) then return { 4, now } end

local value = redis.call('GET', lock)
if not value and redis.call('EXISTS', queue) == 0 then
  local previous = redis.call('GET', fence)
  local token, keep = now, 7200000
  if previous then
    local number = tonumber(previous)
    if not number then return { 5, now } end
    if number >= now then
      token = number + 1
      keep = keep + math.ceil((token - now) / 1000)
    end
  end
  redis.call('SET', fence, string.format('%.0f', token), 'PX', keep)
  redis.call('SET', lock, string.format('%s %.0f %s %.0f %s', owner, token, ttl, now, name),
    'PXAT', string.format('%.0f', math.floor(now / 1000) + ttl))
  return { 1, now, token }
end

local client, channels = ARGV[6], ARGV[7]
--@include next

local wait = tonumber(ARGV[4])
if not value then
  local outcome = drive(owner)
  if outcome == 'mine' or outcome == 'free' then
    local token = next_token()
    redis.call('DEL', lock)
    remove(owner)
    keep_fence(token)
    take(owner, token, tonumber(ttl), tonumber(ttl), name)
    return { 1, now, token }
  end
  value = redis.call('GET', lock)
end

local left = 0
if value then
  local holder, token, limit = string.match(value, '^(%x+:%d+) (%d+) (%d+) %d+ ')
  if not holder then return { 5, now } end
  if holder == owner then
    redis.call('PEXPIRE', lock, ttl)
    remove(owner)
    return { 1, now, tonumber(token) }
  end
  left = clamp(holder, limit)
else
  value = '' -- free, behind more dead entries than one call removes
end
if wait == 0 then return { 3, now, value, left } end

local deadline = now + (wait + 1000) * 1000
local entry = string.format('%.0f %s %s %s', deadline, ARGV[2], ttl, name)
if redis.call('ZSCORE', queue, owner) then
  redis.call('HSET', entries, owner, entry)
else
  if redis.call('ZCARD', queue) >= tonumber(ARGV[9]) then return { 6, now, value, left } end
  local last = redis.call('ZREVRANGE', queue, 0, 0, 'WITHSCORES')
  local order = math.max(now, math.abs(tonumber(last[2] or 0)) + 1)
  redis.call('ZADD', queue, string.format('%.0f', order), owner)
  redis.call('HSET', entries, owner, entry)
end
-- The queue's own TTL outlives its latest deadline and a grant made just before it.
local keep = wait + 12000
if redis.call('PTTL', queue) < keep then redis.call('PEXPIRE', queue, keep) end
if redis.call('PTTL', entries) < keep then redis.call('PEXPIRE', entries, keep) end
return { 2, now, value, left }
