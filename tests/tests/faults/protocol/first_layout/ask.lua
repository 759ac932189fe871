-- ask: take the lock, or stand in the queue for it. Asking again with the same owner is harmless.
-- KEYS  lock queue entry fence
-- ARGV  owner, lease ms, ttl ms (lease + grace), remaining wait ms (0: never queue), apply-by µs,
--       client uuid, channel prefix, client name, max waiters, fence ttl ms
-- Reply {1, now, token} held          {2, now, value} queued     {3, now, value} busy
--       {4, now} applied too late     {5, now} foreign value     {6, now, value} queue full
local lock, queue, entries, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, ttl, name = ARGV[1], ARGV[3], ARGV[8]
local time = redis.call('TIME')
local stamp = time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
local now = tonumber(stamp)
if now > tonumber(ARGV[5]) then return { 4, now } end

if redis.call('EXISTS', lock, queue) == 0 then
  local previous = redis.call('GET', fence)
  local token, keep = stamp, ARGV[10]
  if previous then
    local number = tonumber(previous)
    if not number then return { 5, now } end
    if number >= now then
      token = string.format('%.0f', number + 1)
      keep = keep + math.ceil((number + 1 - now) / 1000)
    end
  end
  redis.call('SET', fence, token, 'PX', keep)
  redis.call('SET', lock, owner .. ' ' .. token .. ' ' .. ttl .. ' ' .. stamp .. ' ' .. name, 'PX', ttl)
  return { 1, now, tonumber(token) }
end

local client, channels, wait, fence_ttl = ARGV[6], ARGV[7], ARGV[4], ARGV[10]
local work, alive
--@include next

local value = redis.call('GET', lock)
if not value then
  local outcome = drive(owner)
  if outcome == 'mine' or outcome == 'free' then
    local token = next_token()
    redis.call('DEL', lock) -- as in grant: a refusing server stops here
    keep_fence(token)
    remove(owner)
    take(owner, token, tonumber(ttl), ttl, name)
    return { 1, now, tonumber(token) }
  end
  value = redis.call('GET', lock)
end

if value then
  local holder, token, limit = string.match(value, '^(%x+:%d+) (%d+) (%d+) %d+ ')
  if not holder then return { 5, now } end
  if holder == owner then
    redis.call('PEXPIRE', lock, ttl)
    remove(owner)
    return { 1, now, tonumber(token) }
  end
  -- Who queues looks every half second, and cuts then.
  if wait == '0' then clamp(holder, limit) end
else
  value = '' -- free, behind more dead entries than one call removes
end
if wait == '0' then return { 3, now, value } end

-- Removes who is dead or overdue, in a part of the queue that differs from owner to owner: multiples of the golden
-- section spread evenly, whichever of a client's owners ask here. A marked entry is the holder's, or a purge's.
-- Returns how many are left.
local function make_room(count)
  local first = 0
  if count > SLICE then
    local number = tonumber(string.sub(string.match(owner, '%d+$'), -9)) -- more digits would leave no fraction
    first = math.floor(number * 0.6180339887498949 % 1 * (count + SLICE)) - SLICE + 1
  end
  local part = redis.call('ZRANGE', queue, math.max(first, 0), first + SLICE - 1, 'WITHSCORES')
  for i = 1, #part, 2 do
    if string.byte(part[i + 1]) ~= 45 then
      local deadline = string.match(redis.call('HGET', entries, part[i]) or '', '^%d+')
      if not deadline or tonumber(deadline) < now or not is_alive(client_of(part[i])) then
        remove(part[i])
        count = count - 1
      end
    end
  end
  return count
end

local entry = string.format('%.0f', now + (wait + 1000) * 1000) .. ' ' .. ARGV[2] .. ' ' .. ttl .. ' ' .. name
if not redis.call('ZSCORE', queue, owner) then
  local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
  local order = stamp
  if last[1] then
    local count, limit = redis.call('ZCARD', queue), tonumber(ARGV[9])
    if count >= limit and make_room(count) >= limit then return { 6, now, value } end
    local previous = math.abs(tonumber(last[2]))
    if previous >= now then order = string.format('%.0f', previous + 1) end
  elseif ARGV[9] == '0' then
    return { 6, now, value }
  end
  redis.call('ZADD', queue, order, owner)
end
redis.call('HSET', entries, owner, entry)
-- The queue's own TTL outlives its latest deadline and a grant made just before it.
local keep = wait + 12000
if redis.call('PTTL', queue) < keep or redis.call('PTTL', entries) < keep then
  redis.call('PEXPIRE', queue, keep)
  redis.call('PEXPIRE', entries, keep)
end
return { 2, now, value }
