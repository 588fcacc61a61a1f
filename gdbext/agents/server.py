"""`python -m gdbext mcp`: the pack's answers for agents, by the Model Context Protocol over standard input and output.

Each call is a process of its own (look.py) with a time limit. So nothing stays open or stopped in the server after a read. If the
server or its client ends at any moment, the calls that it has started end too."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

from .. import __version__, log, package
from ..access.files import json_of
from ..commands.guide import topics
from ..errors import GdbextError
from ..render.text import one_line
from . import tools
from .pages import Pages

LIMIT = 60.0  # seconds of one call
AT_ONCE = 2  # calls that run at the same time
REPORT = ("why", "requests", "ranks")
RESOURCES = {  # uri: (name, what it is)
    "gdbext://report": ("report", "verdict, requests and processes of the engines on this machine, read when it is asked for"),
    "gdbext://guide": ("guide", "which tools help in which trouble"),
}
ASK = "Find out by gdbext's tools: {} Change nothing. Name the evidence, and what is not known. The guide says:\n\n{}"
MISSING = "mcp needs the package mcp, 2 or newer, in this Python: pip install 'gdbext[mcp]'   (or: pip install 'mcp>=2')"
INSTRUCTIONS = (
    "Inspects LLM inference engines (vLLM, SGLang, …) on this machine. Nothing is changed: processes stand still for "
    "milliseconds at most. Begin with why (why it hangs, with evidence), or ranks (which processes there are; their labels are "
    "what `on` and `what` name); guide names the tools for each trouble. Answers are at most 8 kB; a longer one ends with "
    "the cursor of its next page."
)


class Looks:
    """Runs calls: `call(tool, arguments)` -> (text, whether it is an error)."""

    def __init__(self, limit: float = LIMIT) -> None:
        self.limit, self.pages, self._turn = limit, Pages(), asyncio.Semaphore(AT_ONCE)

    async def call(self, tool: str, given: Mapping[str, Any]) -> tuple[str, bool]:
        try:
            if given.get(tools.CURSOR):
                return self.pages.next(str(given[tools.CURSOR])), False
            command = tools.command_of(tool)
            words = tools.words_of(command, {k: v for k, v in given.items() if k != tools.CURSOR}, self.limit)
            async with self._turn:
                status, out, err = await self._look([command.name, *words])
        except GdbextError as e:
            return self.pages.first(tools.in_tools(one_line(str(e)))), True
        if status not in (0, 3):
            lines = (err or out).strip().splitlines() or [f"exit status {status}"]
            return self.pages.first(tools.in_tools(lines[-1])), True
        text = tools.in_calls(out.rstrip("\n"))
        return self.pages.first(tools.for_agents(text) if tool == "guide" and text[:1] != "{" else text), False

    async def report(self) -> str:
        """What an engine, or each, is at: verdict, requests, processes."""
        parts = []
        for tool in REPORT:
            text, _ = await self.call(tool, {})
            parts.append(f"== {tool}\n{text}")
        return "\n\n".join(parts)

    async def _look(self, words: Any) -> tuple[Any, ...]:
        """-> (exit status, standard output, standard error) of one command; `GdbextError` where it takes too long."""
        pipe, line = asyncio.subprocess.PIPE, package.program(sys.executable, "gdbext.agents.look")
        child = await asyncio.create_subprocess_exec(
            *line, str(os.getpid()), *words, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True
        )
        try:
            out, err = await asyncio.wait_for(child.communicate(), self.limit)
        except asyncio.TimeoutError:
            raise GdbextError(f"{words[0]}: no answer in {self.limit:g} s; it was ended, and nothing is left stopped") from None
        finally:
            if child.returncode is None:  # it took too long, or the client takes its call back
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                await asyncio.shield(child.wait())
        return child.returncode, out.decode("utf-8", "replace"), log.pass_on(err.decode("utf-8", "replace"))


def structured(text: str, told: bool = False) -> dict[str, Any] | None:
    """The content of an answer in JSON, as an object, if the answer fits in one page. `told`: it is an answer, not an error:
    text is an object too then (`tools.output_schema`)."""
    other = {"text": text} if told else None
    try:
        found = json_of(text.encode(), "an answer") if text.startswith("{") else None
    except ValueError:
        return other  # a page of a longer one
    return found if isinstance(found, dict) else other


def listed(types: Any) -> list[Any]:
    """The tools as the SDK's `types` describe them."""
    hints = types.ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
    return [
        types.Tool(
            name=name,
            title=tools.title(c),
            description=tools.description(c),
            input_schema=tools.schema(c),
            output_schema=tools.output_schema(c),
            annotations=hints,
        )
        for name, c in tools.tools().items()
    ]


def read_by_people(types: Any, looks: Looks, error: Any) -> dict[str, Any]:
    """The handlers of resources and prompts: what a client's user may choose. A prompt for each topic of the guide. `error`: the
    SDK's class of what a client is told; its numbers are JSON-RPC's."""

    async def list_resources(context: Any, params: Any) -> Any:
        made = [
            types.Resource(uri=uri, name=name, title=name, description=said, mime_type="text/plain")
            for uri, (name, said) in RESOURCES.items()
        ]
        return types.ListResourcesResult(resources=made)

    async def read_resource(context: Any, params: Any) -> Any:
        uri = str(params.uri)
        if uri not in RESOURCES:
            raise error(-32002, f"there is no {uri}; there are {', '.join(RESOURCES)}")
        text = await looks.report() if uri.endswith("report") else "\n\n".join(map(tools.for_agents, topics().values()))
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, mime_type="text/plain", text=text)])

    async def list_prompts(context: Any, params: Any) -> Any:
        made = [types.Prompt(name=name, title=name, description=text.split("\n")[0]) for name, text in topics().items()]
        return types.ListPromptsResult(prompts=made)

    async def get_prompt(context: Any, params: Any) -> Any:
        text = topics().get(params.name)
        if text is None:
            raise error(-32602, f"there is no prompt {params.name!r}; there are {', '.join(topics())}")
        first, _, rest = text.partition("\n")
        content = types.TextContent(type="text", text=ASK.format(first, tools.for_agents(rest)))
        return types.GetPromptResult(description=first, messages=[types.PromptMessage(role="user", content=content)])

    return {
        "on_list_resources": list_resources,
        "on_read_resource": read_resource,
        "on_list_prompts": list_prompts,
        "on_get_prompt": get_prompt,
    }


def serve(limit: float = LIMIT) -> None:
    """Serves until standard input ends; `GdbextError` where the SDK is missing."""
    try:
        import mcp_types as types  # type: ignore[import-not-found,unused-ignore]
        from mcp.server import Server  # type: ignore[import-not-found,unused-ignore]
        from mcp.server.stdio import stdio_server  # type: ignore[import-not-found,unused-ignore]
        from mcp.shared.exceptions import MCPError  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise GdbextError(MISSING) from None

    async def run() -> None:
        looks, all_tools = Looks(limit), listed(types)

        async def list_tools(context: Any, params: Any) -> Any:
            return types.ListToolsResult(tools=all_tools)

        async def call_tool(context: Any, params: Any) -> Any:
            text, failed = await looks.call(params.name, params.arguments or {})
            content: list[types.ContentBlock] = [types.TextContent(type="text", text=text)]
            made = structured(text, not failed)
            return types.CallToolResult(content=content, structured_content=made, is_error=failed)

        server = Server(
            "gdbext",
            version=__version__,
            instructions=INSTRUCTIONS,
            on_list_tools=list_tools,
            on_call_tool=call_tool,
            **read_by_people(types, looks, MCPError),
        )
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    try:
        asyncio.run(run())
    except BaseException as e:  # its task groups raise errors of several classes, by Python's version
        if not _is_gone(e):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the unwritten rest has no reader


def _is_gone(error: BaseException) -> bool:
    """Whether all that was raised is that the client has ended."""
    inner = getattr(error, "exceptions", None)
    return all(map(_is_gone, inner)) if inner else isinstance(error, ConnectionError)
