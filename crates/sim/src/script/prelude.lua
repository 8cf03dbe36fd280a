-- Makes the world that a script sees: a table of what is allowed, behind one that refuses writes.
-- The server's Lua has tables that cannot be written to; here an empty table stands in front.
local library, unwrap, handler = ...
local real = _G
local error, next, pairs, rawget, rawset, setmetatable, type =
    error, next, pairs, rawget, rawset, setmetatable, type
local rawpcall, rawxpcall = pcall, xpcall

local REFUSAL = 'Attempt to modify a readonly table'
local behind = {}

local function refuse()
  error(REFUSAL, 2)
end

local function protect(inner)
  local front = setmetatable({}, { __index = inner, __newindex = refuse, __metatable = false })
  behind[front] = inner
  return front
end

-- Errors of commands come as an object of the host; a script sees a table, or a text.
local function settle(ok, failure, ...)
  if not ok and type(failure) == 'userdata' then
    return ok, unwrap(failure)
  end
  return ok, failure, ...
end

-- As on the server, what `pcall` caught is the text of an error, not its table.
local function flatten(ok, failure, ...)
  if not ok and type(failure) == 'table' then
    local text = failure.err
    if type(text) == 'string' or type(text) == 'number' then
      return ok, text
    end
  end
  return ok, failure, ...
end

local globals = {}
for _, name in pairs({
  'assert', 'collectgarbage', 'error', 'gcinfo', 'getmetatable', 'ipairs', 'load', 'loadstring',
  'rawequal', 'select', 'tonumber', 'tostring', 'type', 'unpack', '_VERSION',
}) do
  globals[name] = real[name]
end

function globals.pcall(...)
  return flatten(settle(rawpcall(...)))
end

function globals.xpcall(body, handle)
  return rawxpcall(body, function(failure)
    if type(failure) == 'userdata' then
      failure = unwrap(failure)
    end
    return handle(failure)
  end)
end

function globals.setmetatable(table, meta)
  if behind[table] then
    error(REFUSAL, 0)
  end
  return setmetatable(table, meta)
end

function globals.rawset(table, key, value)
  if behind[table] then
    error(REFUSAL, 0)
  end
  return rawset(table, key, value)
end

function globals.rawget(table, key)
  return rawget(behind[table] or table, key)
end

function globals.next(table, key)
  return next(behind[table] or table, key)
end

function globals.pairs(table)
  return pairs(behind[table] or table)
end

local routines = {}
for name, body in pairs(real.coroutine) do
  routines[name] = body
end
function routines.resume(...)
  return settle(real.coroutine.resume(...))
end
globals.coroutine = protect(routines)

for name, body in pairs(library.math) do
  real.math[name] = body
end
for _, name in pairs({ 'string', 'table', 'math' }) do
  globals[name] = protect(real[name])
end
globals.redis = protect(library.redis)

setmetatable(globals, {
  __index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end,
})
local front = protect(globals)
rawset(globals, '_G', front)

local function run(body)
  return rawxpcall(body, handler)
end

return globals, front, run
