-- revoke: a hold is taken away. Nobody renews it from now on, so it is over when its TTL is, and its holder is told to stop now.
-- KEYS  lock queue entry fence
-- ARGV  token, 1 to delete it at once or 0, 'fence ttl ms, client uuid, channel prefix', the name of who takes it away
-- Reply {0, ''} there is no such hold   {1, fence} nobody renews it any more   {2, fence} it is deleted, or was released before
--       {3, ''} it is not deleted, for its client is connected
local lock, queue, entries, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local value, last = redis.call('GET', lock), redis.call('GET', fence)
local holder, zeros, token, limit, rest = string.match(value or '', '^2 (%x+:%d+) (0*)([1-9]%d*) (%d+) (.*)$')
if token ~= ARGV[1] then return { 0, '' } end
local fence_ttl, client, channels = string.match(ARGV[3], '^(%d+) (%x+) (.*)$')
fence_ttl = math.max(tonumber(fence_ttl), redis.call('PTTL', fence)) -- who takes it away need not know how long others remember
local open, work, alive
local time = redis.call('TIME')
local stamp = time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
local now = tonumber(stamp)
--@include next

local is_kept = zeros == '0'
if ARGV[2] == '1' and not is_kept and is_alive(client_of(holder)) then return { 3, '' } end
-- What is told this token refuses the old holder. What may fail is before all writes, for the lock is somebody's.
local newest = zeros == '00' and string.gsub(last_token() or token, '%+$', '') or next_token()
-- A write that a refusing server rejects, and that changes nothing; after it the next ones are legal without memory, too.
redis.call('PEXPIRE', lock, math.max(clamp(holder, limit), 1))
local waited_for = not last or string.find(last, '+', 1, true) ~= nil
if is_kept or ARGV[2] == '1' then
  if zeros ~= '00' then keep_fence(newest, waited_for) end
  open = true
  redis.call('DEL', lock)
  remove(holder)
  drive('')
  return { 2, newest }
end
-- Two zeros, where one says that it was released and is kept: renewals and confirmations match neither.
redis.call('SET', lock, '2 ' .. holder .. ' 00' .. token .. ' ' .. limit .. ' ' .. rest, 'KEEPTTL')
if zeros ~= '00' then keep_fence(newest, waited_for) end
redis.pcall('PUBLISH', channels .. client_of(holder), 'revoked ' .. token .. ' ' .. lock .. '\n' .. ARGV[4])
return { 1, newest }
