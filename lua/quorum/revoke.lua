-- revoke: marks a hold on this node so that it can no longer be renewed here, and notifies its holder.
-- KEYS  lock fence
-- ARGV  those of revoke.lua
-- Reply {a newer token or '', how many holds are revoked, 0}
local lock, fence, epoch = KEYS[1], KEYS[2]
local fence_ttl = string.match(ARGV[3], '^%d+')
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
--@include quorum/epoch

local client, number, zeros, token, max_ttl, rest =
  string.match(redis.call('GET', lock) or '', '^3 (%x+):(%d+) (0*)(%d+) (%d+) (.*)$')
if token ~= ARGV[1] or zeros == '0' then return { '', 0, 0 } end
local remaining, new_token = redis.call('PTTL', lock), (last_token())
if remaining < 0 or remaining > tonumber(max_ttl) then remaining = tonumber(max_ttl) end
-- Changes nothing, but fails on a server that rejects writes, before the lock is marked.
redis.call('PEXPIRE', lock, math.max(remaining, 1))
redis.call('SET', lock, '3 ' .. client .. ':' .. number .. ' 00' .. token .. ' ' .. max_ttl .. ' ' .. rest, 'KEEPTTL')
if zeros == '' then
  -- A resource that has seen this token rejects the old holder.
  new_token = math.max(new_token + 1, now)
  local known_ttl = redis.call('PTTL', fence)
  set_fence(string.format('%.0f', new_token))
  -- Never shortens the fence's TTL, because the revoking client may be configured with a shorter `fence_ttl`.
  if known_ttl > redis.call('PTTL', fence) then redis.call('PEXPIRE', fence, known_ttl) end
end
redis.pcall('PUBLISH', string.sub(lock, 1, string.find(lock, ':lock:', 1, true)) .. 'client:' .. client, 'revoked ' .. token .. ' ' .. lock .. '\n' .. ARGV[4])
return { string.format('%.0f', new_token), 1, 0 }
