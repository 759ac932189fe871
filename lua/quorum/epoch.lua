-- Fragment: the epoch of this node, and its fence. Expects the locals `epoch` and `fence` (keys), `fence_ttl` (ms), and the
-- server's time in µs as `now`.

-- Returns the time from which this node grants locks.
--
-- After a restart or a flush, a server may have forgotten grants that clients still count. It grants again after the
-- quarantine, which begins now or at `latest_time`, a time that some node has reached, whichever is later. By then every
-- earlier hold has expired, and the node's clock is above every earlier token.
-- `run_id` identifies the server process, or is `-` if the user asserts that the server keeps its data when it stops.
local function grants_from(run_id, quarantine, latest_time)
  local known_run, from = string.match(redis.call('GET', epoch) or '', '^(%S+) (%d+)$')
  if known_run == run_id then return tonumber(from) end
  from = math.max(now, tonumber(latest_time)) + tonumber(quarantine) * 1000
  redis.call('SET', epoch, run_id .. ' ' .. string.format('%.0f', from))
  return from
end

-- Returns the last token that this node knows, or zero.
local function last_token()
  local fence_value = redis.call('GET', fence) or '0'
  if not string.find(fence_value, '^%d+$') then error('FOREIGN the fence key holds a foreign value') end
  return tonumber(fence_value)
end

-- Keeps the fence, and so rising tokens, until `fence_ttl` after the server's clock has reached the token.
local function set_fence(token)
  local ahead = math.max(0, math.ceil((tonumber(token) - now) / 1000))
  redis.call('SET', fence, token, 'PX', string.format('%.0f', fence_ttl + ahead))
end
