-- acquire_all: takes several locks, if each is free and has no waiters; otherwise none.
-- KEYS  for each lock: lock queue fence
-- ARGV  ttl ms (lease + grace), apply-by µs (16 digits), fence ttl ms, client name, the owner of each lock, the request number
-- Reply 'held token' with the token of every lock, which is the server's time; otherwise
--       'busy' {how, now} not all are free      'late' {how, now} applied too late
local ttl, fence_ttl, name = ARGV[1], ARGV[3], ARGV[4]
local time = redis.call('TIME')
local now_text = time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
if now_text > ARGV[2] then return { 'late', tonumber(now_text) } end

-- All locks are checked before the first write. The checks are those of the fast path of `acquire.lua`, with EXISTS in
-- place of its NX.
for i = 1, #KEYS, 3 do
  local fence_value = redis.call('MGET', KEYS[i + 2])[1]
  local is_uncontended
  if fence_value then
    is_uncontended = #fence_value == 16 and fence_value < now_text and tonumber(fence_value)
  else
    is_uncontended = redis.call('EXISTS', KEYS[i + 2], KEYS[i + 1]) == 0
  end
  if not is_uncontended or redis.call('EXISTS', KEYS[i]) == 1 then return { 'busy', tonumber(now_text) } end
end
for i = 1, #KEYS, 3 do
  redis.call('SET', KEYS[i + 2], now_text, 'PX', fence_ttl)
  redis.call('SET', KEYS[i], '2 ' .. ARGV[4 + (i + 2) / 3] .. ' ' .. now_text .. ' ' .. ttl .. ' ' .. now_text .. ' ' .. name,
    'PX', ttl)
end
return 'held ' .. now_text
