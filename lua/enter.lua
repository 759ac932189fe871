-- Fragment: `enter` takes a lock for an owner, or queues it. A request has the owner, ttl (ms), kind, capacity, weight, wait (ms, 0: never
-- queue), max_waiters and name.
--@include next

-- Removes dead and overdue waiters from one part of the queue, and returns how many remain. The part depends on the
-- owner: multiples of the golden ratio spread evenly, whichever of a client's owners acquire here.
local function make_room(l, owner, count)
  local first = 0
  if count > SLICE then
    local number = tonumber(string.sub(string.match(owner, '%d+$'), -9)) -- with more digits, no fraction would remain
    first = math.floor(number * 0.6180339887498949 % 1 * (count + SLICE)) - SLICE + 1
    first = math.max(0, math.min(first, count - SLICE)) -- a whole slice, also at the ends
  end
  for _, waiter in ipairs(redis.call('ZRANGE', l.queue, first, first + SLICE - 1)) do
    local deadline, name = string.match(redis.call('HGET', l.entries, waiter) or '', '^(%d+) %d+ %l+ %d+ %d+ (.*)$')
    if not deadline or tonumber(deadline) < l.call.now or not is_alive(l, client_of(waiter), name) then
      remove(l, waiter)
      count = count - 1
    end
  end
  return count
end

-- Queues an owner, and notes that its client responds. Returns false if the queue is full.
local function join(l, request)
  local call, owner, tail = l.call, request.owner, redis.call('ZRANGE', l.queue, -1, -1, 'WITHSCORES')
  local score, count, max_waiters = call.now_text, tail[1] and redis.call('ZCARD', l.queue) or 0, tonumber(request.max_waiters)
  local has_place = count < max_waiters or count > 0 and redis.call('ZSCORE', l.queue, owner)
  if not has_place and (count == 0 or make_room(l, owner, count) >= max_waiters) then note_caller(l) return false end
  if tail[1] and tonumber(tail[2]) >= call.now then score = string.format('%.0f', tail[2] + 1) end
  set_queue_flag(l) -- first, because a queue without a flag would be ignored
  redis.call('ZADD', l.queue, 'NX', score, owner)
  redis.call('HSET', l.entries, owner, after(call, request.wait + 1000) .. ' ' .. request.ttl .. ' ' .. request.kind .. ' ' ..
    request.capacity .. ' ' .. request.weight .. ' ' .. request.name)
  if not l.is_noted then redis.call('HDEL', l.entries, '?' .. call.client) end
  -- The TTL of the queue exceeds its latest deadline, and a grant made just before it.
  local queue_ttl = request.wait + 12000
  if redis.call('PTTL', l.queue) < queue_ttl or redis.call('PTTL', l.entries) < queue_ttl then
    redis.call('PEXPIRE', l.queue, queue_ttl)
    redis.call('PEXPIRE', l.entries, queue_ttl)
  end
  return true
end

-- Returns the reply to a request that is refused or queued now, or false if nothing is in its way.
local function refuse(l, request, mine, outcome)
  local refusal = mine and 'busy' -- revoked before its owner learned of the hold, or kept
  if l.kind and l.kind ~= request.kind then refusal = 'other_kind' end
  if not refusal and (outcome ~= 'free' or l.used + request.weight > request.capacity) then
    refusal = request.wait == 0 and 'busy' or not join(l, request) and 'full' or outcome == 'more' and 'unfinished' or 'queued'
  end
  return refusal and with_holders(l, { refusal, l.call.now, state(l), nil, nil, nil }, request.wait > 0)
end

local function enter(l, request, mine)
  local call, owner = l.call, request.owner
  local before = l.kind == request.kind and l.capacity ~= request.capacity and state(l)
  if mine and (mine.flag == 'h' or mine.flag == 'g') then -- repeated: the full lease, and the place in the queue is removed
    remove(l, owner)
    begin_write(l)
    put(l, owner, 'h', request.ttl, mine)
    l.my_token = mine.token
  end
  local outcome = serve(l, owner)
  if not l.my_token then
    local refused = refuse(l, request, mine, outcome)
    if refused then return refused end
    l.kind, l.capacity, l.used = request.kind, request.capacity, l.used + request.weight
    l.my_token = token_for(l, request.weight, false)
    put(l, owner, 'h', request.ttl, { token = l.my_token, weight = request.weight, ttl = request.ttl, since = call.now_text,
      name = request.name })
  end
  if before then return { 'other_number', call.now, before, tonumber(l.my_token) } end
  return 'held ' .. l.my_token .. ' ' .. call.now_text
end

-- Reads the arguments of an acquire. Returns the request, and the lock.
local function open_request(now_text, fence_value, kind, capacity, weight)
  local wait, max_waiters, channels = string.match(ARGV[2], '^(%d+) (%d+) ?([^\n]*)', 18)
  local owner = string.sub(ARGV[1], 3, -2)
  local call = begin_call(client_of(owner), ARGV[4], channels, now_text)
  return { owner = owner, ttl = tonumber(ARGV[3]), kind = kind, capacity = tonumber(capacity), weight = tonumber(weight),
    wait = tonumber(wait), max_waiters = max_waiters, name = ARGV[5] },
    open_lock(call, KEYS[1], KEYS[2], QUEUE, ENTRIES, fence_value)
end
