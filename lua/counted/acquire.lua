-- acquire: takes a weight of the lock, or queues the owner for it. Idempotent for the same owner.
-- KEYS  lock entry queue fence
-- ARGV  owner, ttl ms (lease + grace), apply-by µs (16 digits), fence ttl ms, client name, 'kind capacity weight',
--       'lease ms, remaining wait ms (0: never queue), max waiters, client uuid, channel prefix', the request number
-- Reply 'held token now'; otherwise {2, now, state or '', fields of the lock ...} queued; with '', acquire again at once
--       3 as 2: busy      {4, now} applied too late      6 as 2: queue full      7 as 2: in use as another kind
--       {1, now, state before, token}: held, and the last call that was granted had another limit
local lock, queue, entries, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, ttl, fence_ttl, name = ARGV[1], tonumber(ARGV[2]), ARGV[4], ARGV[6] .. ' ' .. ARGV[5]
local time = redis.call('TIME')
local now_text = time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
local now = tonumber(now_text)
if now_text > ARGV[3] then return { 4, now } end
local my_kind, limit, weight = string.match(ARGV[6], '^(%l+) (%d+) (%d+)$')
local lease, wait, max_waiters, client, channels = string.match(ARGV[7], '^(%d+) (%d+) (%d+) (%x+) (.*)$')
limit, weight = tonumber(limit), tonumber(weight)
local work_left, alive, fence_value, kept_for
--@include queue
--@include fence
--@include counted/holders
local record = read_state(owner)
local head = redis.call('ZRANGE', queue, 0, 0)[1] -- a mutex's queue fails here
local flag, _, _, rest, token = string.match(record or '', RECORD)
local outcome, before = 'free', kind == my_kind and capacity ~= limit and state()

local function held()
  if before then return { 1, now, before, tonumber(token) } end
  return 'held ' .. token .. ' ' .. now_text
end

if flag == 'h' or flag == 'g' then -- repeated: the full lease, and the place in the queue is removed
  remove(owner)
  put(owner, 'h', ttl, rest)
  my_token = token
end
if head then
  note_caller()
  outcome = grant_next(owner)
end
if my_token then
  token = my_token
  return held()
end
local value = kind and state() or ''
if kind and kind ~= my_kind then return with_holders({ 7, now, value }) end
if flag then return with_holders({ 3, now, value }) end -- revoked, or kept by min_hold
if outcome == 'free' and used + weight <= limit then
  kind, capacity = my_kind, limit
  token = token_for(weight, false)
  used = used + weight
  put(owner, 'h', ttl, token .. ' ' .. weight .. ' ' .. now_text .. ' ' .. ARGV[5])
  return held()
end
if wait == '0' then return with_holders({ 3, now, value }) end

local function join()
--@include join
  return { 2, now, outcome ~= 'more' and value or '' }
end
return with_holders(join())
