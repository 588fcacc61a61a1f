"""A client of the MCP SDK's own: `python mcp_client.py ROOT LIMIT` reads calls, one JSON `[tool, arguments]` a line, and answers
each with one line: {"text", "failed"}. The first line that it writes lists the tools."""

import asyncio
import json
import sys

from mcp import Client, StdioServerParameters


async def main():
    root, limit = sys.argv[1:]
    server = StdioServerParameters(command=sys.executable, args=["-m", "gdbext", "mcp", "--limit", limit], cwd=root)
    async with Client(server) as client:
        found = (await client.list_tools()).tools
        print(json.dumps([one.model_dump(by_alias=True, exclude_none=True) for one in found]), flush=True)
        while True:
            line = await asyncio.to_thread(sys.stdin.readline)
            if not line:
                return
            tool, arguments = json.loads(line)
            said = await client.call_tool(tool, arguments)
            print(json.dumps({"text": said.content[0].text, "failed": bool(said.is_error)}), flush=True)


asyncio.run(main())
