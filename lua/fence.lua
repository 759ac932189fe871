-- Fragment: the fence of a lock, see `open_lock`.
--
-- Returns the fence's value. MGET returns nil for a value of another type, and GET fails.
local function read_fence(l)
  l.fence_value = l.fence_value or redis.call('GET', l.fence)
  return l.fence_value
end

-- Returns the next token, as a string.
local function next_token(l)
  local previous, call = read_fence(l), l.call
  if not previous then return call.now_text end
  local number = tonumber(string.match(previous, '^(%d+)%+?$'))
  if not number then error('FOREIGN the fence key holds a foreign value') end
  if number < call.now then return call.now_text end
  return string.format('%.0f', number + 1)
end

-- Keeps the fence until `fence_ttl` after the server's clock has reached the token. While the fence exists, tokens rise
-- whatever the clock does. The flag, a plus sign, means that there may be a queue.
local function set_fence(l, token, has_queue)
  local call = l.call
  local ttl = call.fence_ttl
  if token ~= call.now_text then ttl = ttl + math.ceil((tonumber(token) - call.now) / 1000) end
  l.fence_value = has_queue and token .. '+' or token
  redis.call('SET', l.fence, l.fence_value, 'PX', ttl)
end

-- Returns false if there is certainly no queue. A fence whose token is not sixteen digits long means nothing.
local function has_queue(l)
  local value = read_fence(l)
  return not value or #value ~= 16
end

local function set_queue_flag(l)
  local value = read_fence(l)
  if value and #value == 16 and tonumber(value) then
    l.fence_value = value .. '+'
    redis.call('SET', l.fence, l.fence_value, 'KEEPTTL')
  end
end
