-- Fragment: from when on this node votes. Expects the locals `epoch` (key) and `now` (the server's time, µs).
--
-- A server that was restarted, or flushed, may have forgotten votes that others still count. It votes again when the longest
-- lease is over, and its clock is above every token that was made before: `newest`, a time that some node has reached.
-- `run` is what the server calls itself since its start, or `-` if its user says that it forgets nothing when it stops.
local function votes_from(run, quarantine, newest)
  local known, from = string.match(redis.call('GET', epoch) or '', '^(%S+) (%d+)$')
  if known == run then return tonumber(from) end
  from = math.max(now, tonumber(newest)) + tonumber(quarantine) * 1000
  redis.call('SET', epoch, run .. ' ' .. string.format('%.0f', from))
  return from
end
