-- revoke: marks the holds with these tokens so that they can no longer be extended, and notifies their holders. Can also delete
-- those whose client is not connected.
-- KEYS  lock entry queue fence
-- ARGV  the tokens, 1 to delete (otherwise 0), 'fence ttl ms, client uuid, channel prefix', the name of the revoking client, the request number
-- Reply {a newer token or '', how many holds are revoked, how many are deleted now or had been kept by min_hold}
local lock, queue, entries, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local fence_ttl, client, channels = string.match(ARGV[3], '^(%d+) (%x+) (.*)$')
local time = redis.call('TIME')
local now_text = time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
local now = tonumber(now_text)
local work_left, alive, fence_value
--@include queue
--@include fence
--@include counted/holders
read_state('-')
local head = redis.call('ZRANGE', queue, 0, 0)[1]
local fields, wanted, marked, gone, newest, count, deleted = redis.call('HGETALL', lock), {}, {}, {}, '0', 0, 0
local is_new -- whether a hold ends that was not revoked before
for token in string.gmatch(ARGV[1], '%d+') do wanted[token] = true end
for i = 1, #fields, 2 do
  local flag, _, _, _, token, weight = string.match(fields[i + 1], RECORD)
  if flag and wanted[token] then
    if token > newest then newest = token end
    is_new = is_new or flag ~= 'r'
    if flag == 'k' or ARGV[2] == '1' and not is_alive(client_of(fields[i])) then
      gone[fields[i]] = weight
      deleted = deleted + 1
    else
      if flag ~= 'r' then marked[fields[i]] = 'r' .. string.sub(fields[i + 1], 2) end
      count = count + 1
    end
  end
end
if newest ~= '0' then
  redis.call('HDEL', lock, '-') -- a server that rejects writes stops here
  fence_value = read_fence() or newest
  newest = string.match(fence_value, '^%d+') or error('FOREIGN the fence key holds a foreign value')
else
  newest = ''
end
if is_new then
  -- A resource that has seen this token rejects the old holders, and every later reader has a newer one.
  newest = next_token()
  local known_ttl = redis.call('PTTL', fence)
  set_fence(newest, head ~= nil)
  if known_ttl > redis.call('PTTL', fence) then redis.call('PEXPIRE', fence, known_ttl) end
  phase = '0'
end
for owner, record in pairs(marked) do
  redis.call('HSET', lock, owner, record, 'state', state())
  redis.pcall('PUBLISH', channels .. client_of(owner),
    'revoked ' .. string.match(record, '^%l %d+ %d+ (%d+)') .. ' ' .. lock .. '\n' .. ARGV[4])
end
for owner, weight in pairs(gone) do drop(owner, weight) end
if head then grant_next('') end -- also because a sweep may have made room
return { newest, count, deleted }
