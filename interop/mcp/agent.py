"""A coding agent with the official client of the Model Context Protocol.

The arguments are the mode of the handshake (`auto` or `legacy`), the agent's name, and the command
of the server. It reads one JSON array a line: `[ID, "call", TOOL, ARGUMENTS]` starts a call,
`[ID, "cancel"]` cancels it. It prints one JSON object a line: what the server has said at the
beginning, then the outcome of each call with its ID. It ends with its input.
"""

import asyncio
import json
import os
import sys

from mcp import Client, MCPError, StdioServerParameters
from mcp.types import Implementation


def say(**what):
    print(json.dumps(what), flush=True)


async def call(client, number, tool, arguments):
    try:
        result = await client.call_tool(tool, arguments)
        shown = json.loads(result.content[0].text)
        assert shown == result.structured_content, "text and structure are the same"
        say(id=number, error=bool(result.is_error), answer=shown)
    except MCPError as error:
        say(id=number, code=error.error.code, message=error.error.message)
    except asyncio.CancelledError:
        say(id=number, cancelled=True)


async def main(mode, name, command, *arguments):
    server = StdioServerParameters(command=command, args=list(arguments), env=dict(os.environ))
    info = Implementation(name=name, version="1")
    async with Client(server, mode=mode, client_info=info) as client:
        tools = (await client.list_tools()).tools
        schemas = {tool.name: tool.input_schema for tool in tools}
        say(version=client.protocol_version, instructions=client.instructions, tools=schemas)
        calls = {}
        while line := await asyncio.to_thread(sys.stdin.readline):
            number, verb, *rest = json.loads(line)
            if verb == "call":
                calls[number] = asyncio.create_task(call(client, number, *rest))
            else:
                calls[number].cancel()


asyncio.run(main(*sys.argv[1:]))
