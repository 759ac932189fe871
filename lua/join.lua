-- Fragment: queues the owner, or returns 6 if the queue is full. Expects the locals `owner`, `ttl`, `lease`, `wait` (ms), `max_waiters`,
-- `name`, `value` and `kept_for`, and what `queue.lua` and `fence.lua` expect.
--
-- Removes dead and overdue waiters from one part of the queue, and returns how many remain. The part depends on the
-- owner: multiples of the golden ratio spread evenly, whichever of a client's owners acquire here.
local function make_room(count)
  local first = 0
  if count > SLICE then
    local number = tonumber(string.sub(string.match(owner, '%d+$'), -9)) -- with more digits, no fraction would remain
    first = math.floor(number * 0.6180339887498949 % 1 * (count + SLICE)) - SLICE + 1
    first = math.max(0, math.min(first, count - SLICE)) -- a whole slice, also at the ends
  end
  for _, waiter in ipairs(redis.call('ZRANGE', queue, first, first + SLICE - 1)) do
    local deadline = string.match(redis.call('HGET', entries, waiter) or '', '^%d+')
    if not deadline or tonumber(deadline) < now or not is_alive(client_of(waiter)) then
      remove(waiter)
      count = count - 1
    end
  end
  return count
end

local deadline = is_polling(client) and polling_deadline() or string.format('%.0f', now + (wait + 1000) * 1000)
local entry = deadline .. ' ' .. lease .. ' ' .. ttl .. ' ' .. name
if not redis.call('ZSCORE', queue, owner) then
  local tail = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
  local score = now_text
  if tail[1] then
    local count, max_count = redis.call('ZCARD', queue), tonumber(max_waiters)
    if count >= max_count and make_room(count) >= max_count then return { 6, now, value, kept_for } end
    local previous = tonumber(tail[2])
    if previous >= now then score = string.format('%.0f', previous + 1) end
  elseif max_waiters == '0' then
    return { 6, now, value, kept_for }
  end
  set_queue_flag() -- first, because a queue without a flag would be ignored
  redis.call('ZADD', queue, score, owner)
end
redis.call('HSET', entries, owner, entry)
-- The TTL of the queue exceeds its latest deadline, and a grant made just before it.
local queue_ttl = wait + 12000
if redis.call('PTTL', queue) < queue_ttl or redis.call('PTTL', entries) < queue_ttl then
  redis.call('PEXPIRE', queue, queue_ttl)
  redis.call('PEXPIRE', entries, queue_ttl)
end
