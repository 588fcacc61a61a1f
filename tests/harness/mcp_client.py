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
            if tool in ("list", "resource", "prompt"):
                print(json.dumps({"text": await of_people(client, tool, **arguments), "failed": False}), flush=True)
                continue
            said = await client.call_tool(tool, arguments)
            print(json.dumps({"text": said.content[0].text, "failed": bool(said.is_error)}), flush=True)


async def of_people(client, what, name=""):
    """What a client's user sees: the names of resources and prompts; one of them; the error's words where there is none."""
    try:
        if what == "list":
            resources, prompts = (await client.list_resources()).resources, (await client.list_prompts()).prompts
            return [str(one.uri) for one in resources] + [one.name for one in prompts]
        if what == "resource":
            return (await client.read_resource(name)).contents[0].text
        return (await client.get_prompt(name)).messages[0].content.text
    except Exception as e:
        return f"error: {e}"


asyncio.run(main())
