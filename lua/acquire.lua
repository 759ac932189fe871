-- acquire: takes the lock, or queues the owner for it. Idempotent for the same owner.
-- KEYS  lock queue entry fence
-- ARGV  owner, ttl ms (lease + grace), apply-by µs (16 digits), fence ttl ms, client name,
--       'lease ms, remaining wait ms (0: never queue), max waiters, client uuid, channel prefix', the request number
-- Reply 'held token', or 'held token now' if the token is not the server's time; otherwise
--       {2, now, value} queued         {3, now, value} busy      {4, now} applied too late
--       {5, now} foreign value         {6, now, value} queue full
--       2, 3 and 6 end with the remaining ms of a lock that min_hold keeps
local lock, queue, entries, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, ttl, fence_ttl, name = ARGV[1], ARGV[2], ARGV[4], ARGV[5]
local time = redis.call('TIME')
local now_text = time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
if now_text > ARGV[3] then return { 4, tonumber(now_text), ARGV[7] } end

-- The fast path: the lock is free, there is no queue, and the last token is not ahead of the clock. A fence without a
-- flag means that there is no queue. Without a fence, the queue itself is checked.
local found = redis.call('MGET', lock, fence)
local value, fence_value = found[1], found[2]
local is_uncontended, lock_deleted
if fence_value then
  is_uncontended = #fence_value == 16 and fence_value < now_text and tonumber(fence_value)
else
  is_uncontended = redis.call('EXISTS', fence, queue) == 0
end
if is_uncontended and not value then
  redis.call('SET', fence, now_text, 'PX', fence_ttl) -- PXAT would need a sum, and formatting it costs more than it saves
  -- NX, because MGET returns nil for a value of another type.
  if redis.call('SET', lock, '2 ' .. owner .. ' ' .. now_text .. ' ' .. ttl .. ' ' .. now_text .. ' ' .. name,
      'PX', ttl, 'NX') then
    return 'held ' .. now_text .. ' ' .. ARGV[7]
  end
end

--@slow path
local now = tonumber(now_text)
local lease, wait, max_waiters, client, channels = string.match(ARGV[6], '^(%d+) (%d+) (%d+) (%x+) (.*)$')
local work_left, alive
--@include next

-- A fence without a flag means that there is no queue, and so no note.
if not fence_value or #fence_value ~= 16 then note_caller() end
value = value or redis.call('GET', lock)
if not value then
  local outcome = grant_next(owner)
  if outcome == 'free' then
    my_token = next_token()
    set_fence(my_token, false)
    write_lock(owner, my_token, tonumber(ttl), ttl, name)
  end
  if my_token then return 'held ' .. my_token .. ' ' .. now_text end
  value = redis.call('GET', lock)
end

local kept_for
if value then
  local holder, zeros, token, max_ttl = string.match(value, '^2 (%x+:%d+) (0*)(%d+) (%d+) %d+ ')
  if not holder then return { 5, now } end
  if zeros == '0' then kept_for = redis.call('PTTL', lock) end
  if holder == owner then
    if zeros ~= '' then return { 3, now, value, kept_for } end -- revoked before its owner learned of the hold, or kept
    redis.call('PEXPIRE', lock, ttl)
    remove(owner)
    return 'held ' .. token .. ' ' .. now_text
  end
  -- A waiter's next queue check, at most half a second away, clamps the lock instead.
  if wait == '0' then clamp_ttl(holder, max_ttl) end
else
  value = '' -- free, behind more dead entries than one call removes
end
if wait == '0' then return { 3, now, value, kept_for } end

--@include join
return { 2, now, value, kept_for }
