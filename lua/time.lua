-- Fragment: the server's time (µs), as sixteen digits.
local function server_time()
  local time = redis.call('TIME')
  return time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
end
