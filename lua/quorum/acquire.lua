-- acquire: requests this node's vote, or a place in its queue. Idempotent for the same owner: its vote stays short.
-- KEYS  lock queue entry fence epoch
-- ARGV  owner, ticket µs, ttl ms (lease + grace), apply-by µs (16 digits), fence ttl ms, client name,
--       'lease ms, remaining wait ms, max waiters, quarantine ms, run id, client uuid, channel prefix',
--       the token to confirm the vote with at once, if it is above the node's clock and all tokens that it knows (0: none)
-- Reply {1, now, token, 1 if confirmed with it, otherwise 0} the vote is the owner's
--       {2, now, token, 1 if a lower ticket waits, otherwise 0} it was the owner's already
--       {3, now, value} queued     {4, now} applied too late     {5, now} foreign value     {6, now, value} queue full
--       3 ends with the remaining ms of a lock that min_hold keeps
--       {7, now, from} the node does not vote before that time
local lock, queue, entries, fence, epoch = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local owner, ticket, ttl, fence_ttl, name, named_token = ARGV[1], ARGV[2], ARGV[3], ARGV[5], ARGV[6], ARGV[8]
local lease, wait, max_waiters, quarantine, run_id, client, channels =
  string.match(ARGV[7], '^(%d+) (%d+) (%d+) (%d+) (%S+) (%x+) (.*)$')
local time = redis.call('TIME')
local now_text = time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
local now = tonumber(now_text)
--@include quorum/epoch
--@include quorum/votes

if now_text > ARGV[4] then return { 4, now } end
local from = votes_from(run_id, quarantine, ticket)
if now < from then return { 7, now, from } end

local value = redis.call('GET', lock)
local state, holder, token, holder_ticket, max_ttl, kept_for
if value then
  state, holder, token, holder_ticket, max_ttl = string.match(value, '^3 (%a+) (%x+:%d+) (%d+) (%d+) (%d+) ')
  if not state then return { 5, now } end
  if holder == owner and not has_ended(state) then
    if state == 'vote' then redis.call('PEXPIRE', lock, max_ttl) end
    local head = redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')
    local lower = head[1] and is_lower(head[2], head[1], ticket, owner)
    return { 2, now, tonumber(token), lower and 1 or 0 }
  end
  -- Shortens a TTL that exceeds what the holder can have set, as after a backward step of the server's clock.
  local remaining = redis.call('PTTL', lock)
  if remaining < 0 or remaining > tonumber(max_ttl) then redis.call('PEXPIRE', lock, max_ttl) end
  if state == 'kept' then kept_for = math.min(remaining, tonumber(max_ttl)) end
end

local waiters = redis.call('ZCARD', queue)
if not value and waiters == 0 then
  local given, is_confirmed = vote_for(owner, ticket, lease, name, named_token, ttl)
  return { 1, now, tonumber(given), is_confirmed }
end
if waiters >= tonumber(max_waiters) and not redis.call('ZSCORE', queue, owner) then
  for _, other in ipairs(redis.call('ZRANGE', queue, 0, SLICE - 1)) do
    if not live_waiter(other) then remove(other) end
  end
  if redis.call('ZCARD', queue) >= tonumber(max_waiters) then return { 6, now, value or '' } end
end
enqueue(owner, ticket, lease .. ' ' .. ttl .. ' ' .. name, wait)
if not value then
  local granted_owner, given, is_confirmed = grant_next(owner, named_token, ttl)
  if granted_owner == owner then return { 1, now, tonumber(given), is_confirmed } end
  value = redis.call('GET', lock) or ''
elseif not has_ended(state) and is_lower(ticket, owner, holder_ticket, holder) then
  -- Also sent to a holder that has confirmed: with too few votes on other nodes, it yields this one.
  redis.pcall('PUBLISH', channels .. client_of(holder), 'lower ' .. holder .. ' ' .. token .. ' ' .. now_text .. ' ' .. lock)
end
return { 3, now, value, kept_for }
