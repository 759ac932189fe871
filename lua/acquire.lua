-- acquire: takes the lock, or queues the owner for it. Idempotent for the same owner.
-- KEYS  lock fence
-- ARGV  '2 owner ' (the start of the value), 'apply-by µs (16 digits), remaining wait ms (0: never queue), max waiters, channels', ttl ms (lease + grace),
--       fence ttl ms, client name, the request number
-- Reply that of `enter`; of the fast path 'held token', whose token is the server's time; 'late' {how, now}: applied too late
local call, lock, fence, start, ttl = redis.call, KEYS[1], KEYS[2], ARGV[1], ARGV[3]
local time = call('TIME')
local now_text = time[1] .. time[2]
if #now_text < 16 then now_text = time[1] .. string.sub('000000', #time[2] + 1) .. time[2] end
if now_text > ARGV[2] then return { 'late', tonumber(now_text), ARGV[6] } end

-- The fast path: the lock is free, there is no queue, and the last token is not ahead of the clock. A fence without a
-- flag means that there is no queue. Without a fence, the queue itself is checked.
local found = call('MGET', lock, fence)
local value, fence_value = found[1], found[2]
local is_uncontended
if fence_value then
  is_uncontended = #fence_value == 16 and fence_value < now_text and tonumber(fence_value)
elseif not value then
  is_uncontended = call('EXISTS', fence, (string.gsub(lock, ':lock:', ':queue:', 1))) == 0
end
if is_uncontended and not value then
  call('SET', fence, now_text, 'PX', ARGV[4]) -- PXAT would need a sum, and formatting it costs more than it saves
  -- NX, because MGET returns nil for a value of another type.
  if call('SET', lock, start .. now_text .. ' ' .. ttl .. ' ' .. now_text .. ' ' .. ARGV[5], 'PX', ttl, 'NX') then
    return 'held ' .. now_text .. ' ' .. ARGV[6]
  end
end

--@slow path
--@include enter
local request, l = open_request(now_text, fence_value, 'mutex', 1, 1)
local mine = read_state(l, request.owner, value)
-- Without the functions that grant, which take time to create.
if is_full(l) and not mine then
  if request.wait == 0 and has_queue(l) then note_caller(l) end
  return refuse(l, request, mine, 'blocked')
end
return enter(l, request, mine)
