-- release, and cancel: removes the owner's hold or queue entry, and grants to the next waiters.
-- KEYS  lock entry queue fence
-- ARGV  owner, keep ms (min_hold: the weight stays taken this long), 'fence ttl ms, client uuid, channel prefix', the request number
-- Reply 1 if the owner held the lock, otherwise 0; plus 2 if further waiters can be served: call again
local lock, queue, entries, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, min_hold = ARGV[1], tonumber(ARGV[2])
local fence_ttl, client, channels = string.match(ARGV[3], '^(%d+) (%x+) (.*)$')
local time = redis.call('TIME')
local now_text = time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
local now = tonumber(now_text)
local work_left, alive, fence_value
--@include queue
--@include fence
--@include counted/holders
local record = read_state(owner)
local head = redis.call('ZRANGE', queue, 0, 0)[1]
local flag, _, _, rest, _, weight = string.match(record or '', RECORD)
if flag and min_hold > 0 then
  put(owner, 'k', min_hold, rest)
elseif flag then
  drop(owner, weight)
end
local outcome
if head then
  note_caller()
  remove(owner)
  outcome = grant_next('')
end
return (flag and 1 or 0) + (outcome == 'more' and 2 or 0)
