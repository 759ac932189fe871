-- Fragment: returns the time from which this node votes. Expects the locals `epoch` (key) and `now` (server time, µs).
--
-- After a restart or a flush, a server may have forgotten votes that clients still count. It votes again after the
-- quarantine, which begins now or at `latest_time`, a time that some node has reached, whichever is later. By then every
-- earlier hold has expired, and the node's clock is above every earlier token.
-- `run_id` identifies the server process, or is `-` if the user asserts that the server keeps its data when it stops.
local function votes_from(run_id, quarantine, latest_time)
  local known_run, from = string.match(redis.call('GET', epoch) or '', '^(%S+) (%d+)$')
  if known_run == run_id then return tonumber(from) end
  from = math.max(now, tonumber(latest_time)) + tonumber(quarantine) * 1000
  redis.call('SET', epoch, run_id .. ' ' .. string.format('%.0f', from))
  return from
end
