-- Fragment: reads a success record, '1 since gap token finished name'.
--
-- Returns `since` and what follows it, or nil if distlock did not write the value. No clock is ten years ahead.
local function parse_record(record, now)
  local since, rest, gap, token, finished = string.match(record, '^1 ([1-9]%d*)( (%d+) ([1-9]%d*) ([1-9]%d*) .*)$')
  if since and math.max(since, gap, token, finished) < now + 315576000000000 then return since, rest end
end
