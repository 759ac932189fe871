-- Fragment: the fence. Expects the locals `fence` (its key), `fence_value` (its value as last read or written, nil if not a
-- string), `fence_ttl` (ms), and the server's time in µs, as string (`now_text`) and number (`now`).
--
-- Returns the fence's value. MGET returns nil for a value of another type, and GET fails.
local function read_fence()
  fence_value = fence_value or redis.call('GET', fence)
  return fence_value
end

-- Returns the next token, as a string.
local function next_token()
  local previous = read_fence()
  if not previous then return now_text end
  local number = tonumber(string.match(previous, '^(%d+)%+?$'))
  if not number then error('FOREIGN the fence key holds a foreign value') end
  if number < now then return now_text end
  return string.format('%.0f', number + 1)
end

-- Keeps the fence until `fence_ttl` after the server's clock has reached the token. While the fence exists, tokens rise
-- whatever the clock does. The flag, a plus sign, means that there may be a queue.
local function set_fence(token, has_queue)
  local ttl = fence_ttl
  if token ~= now_text then ttl = ttl + math.ceil((tonumber(token) - now) / 1000) end
  fence_value = has_queue and token .. '+' or token
  redis.call('SET', fence, fence_value, 'PX', ttl)
end

local function set_queue_flag()
  if read_fence() and string.find(fence_value, '^%d+$') then
    fence_value = fence_value .. '+'
    redis.call('SET', fence, fence_value, 'KEEPTTL')
  end
end
