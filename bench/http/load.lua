-- Requests of the section http: POSTs with a body of 1 KiB. `same` repeats a thousand keys, `fresh` never repeats one.
-- wrk ... -- MODE PATH NAME: NAME sets the keys of one run apart from those of every other.
local threads = 0
local KEYS = 1000

function setup(thread)
  thread:set("number", threads)
  threads = threads + 1
end

function init(args)
  local body = '{"amount":"' .. string.rep("x", 1011) .. '"}'
  local head = "POST " .. args[2] .. " HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer bench\r\n"
    .. "Content-Type: application/json\r\nContent-Length: " .. #body .. "\r\nIdempotency-Key: " .. args[3] .. "-"
  local tail = "\r\n\r\n" .. body
  at = 0
  if args[1] == "same" then
    local requests = {}
    for key = 1, KEYS do requests[key] = head .. key .. tail end
    request = function()
      at = at % KEYS + 1
      return requests[at]
    end
  else
    head = head .. number .. "-"
    request = function()
      at = at + 1
      return head .. at .. tail
    end
  end
end
