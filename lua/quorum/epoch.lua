-- Fragment: returns the time from which this node votes. Expects the locals `epoch` (key) and `now` (server time, µs).
--
-- After a restart or a flush, a server may have forgotten votes that clients still count. It votes again once the
-- longest lease has expired and its clock is above every earlier token: `newest`, a time that some node has reached.
-- `run` identifies the server process, or is `-` if the user asserts that the server keeps its data when it stops.
local function votes_from(run, quarantine, newest)
  local known, from = string.match(redis.call('GET', epoch) or '', '^(%S+) (%d+)$')
  if known == run then return tonumber(from) end
  from = math.max(now, tonumber(newest)) + tonumber(quarantine) * 1000
  redis.call('SET', epoch, run .. ' ' .. string.format('%.0f', from))
  return from
end
