-- Ends in time what Governor set and did not renew: HAProxy's own commands have no expiry.
--
-- Governor writes into the map, beside each value, until when it holds (`key@until`, unix seconds). Four times a second
-- this looks for what is over, puts the server back to what is left of weight and breaker, and forgets the entry.
-- `show governor` on the stats socket tells how many seconds ago it looked last.

local path = os.getenv("GOVERNOR_MAP")
local map = Map.new(path, Map._str)
local last = 0
local limits = {}  -- maxconn of each server as it was configured

local function over(key, now)
  local till = map:lookup(key .. "@until")
  return till ~= nil and tonumber(till) ~= nil and tonumber(till) <= now
end

local function percent(key, now)
  local value = map:lookup(key)
  if value == nil or over(key, now) then
    return 100
  end
  return tonumber(value) or 100
end

local function forget(key)
  core.del_map(path, key)
  core.del_map(path, key .. "@until")
  core.Warning("governor: " .. key .. " was not renewed and has ended")
end

local function weigh(server, share)
  if share <= 0 then
    server:set_drain()
    return
  end
  server:set_weight(share .. "%")
  local draining = server:is_draining()
  if draining == true or draining == 1 then  -- and not in somebody's maintenance, which is not ours to end
    server:set_ready()
  end
end

local function look(now)
  for backend, proxy in pairs(core.backends) do
    local gate = backend .. "/admission/concurrency"
    local ended = over(gate, now)
    for name, server in pairs(proxy.servers) do
      local id = backend .. "/" .. name
      if limits[id] == nil then
        limits[id] = server:get_maxconn()
      end
      if ended then
        server:set_maxconn(limits[id])
      end
      local weight, breaker = backend .. "/weight/" .. name, backend .. "/breaker/" .. name
      local gone = {}
      for _, key in ipairs({ weight, breaker }) do
        if over(key, now) then
          gone[#gone + 1] = key
        end
      end
      if #gone > 0 then
        weigh(server, math.min(percent(weight, now), percent(breaker, now)))
        for _, key in ipairs(gone) do
          forget(key)
        end
      end
    end
    if ended then
      forget(gate)
    end
  end
end

core.register_task(function()
  while true do
    local now = core.now().sec
    local fine, words = pcall(look, now)
    if fine then
      last = now
    else
      core.Alert("governor: " .. tostring(words))
    end
    core.msleep(250)
  end
end)

core.register_cli({ "show", "governor" }, "show governor : seconds since expired values were looked for", function(applet)
  applet:send(tostring(core.now().sec - last) .. "\n")
end)
