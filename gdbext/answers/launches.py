"""Kernel launches and the breakpoints on them as JSON fields and as text."""

from __future__ import annotations

import os
from typing import Any

from ..kernels import signatures
from ..kernels.launch import Launch
from ..render import names
from ..render.fields import NUMBER, REAL, TEXT, VALUE, Field, Fields, each, or_none
from ..render.jsonline import Address
from ..render.text import Style, escape, seconds
from .breakpoints import BREAKPOINT, SET

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..control.kernel_breakpoints import KernelBreakpoint

MAX_SHOWN = 24  # kernels


ARGUMENT = Fields(
    Field("index", int),
    Field("name", TEXT, read=or_none("name")),
    Field("type", TEXT, read=or_none("type")),
    Field("value", (bool, *VALUE), read=lambda a: Address(a.value) if a.pointer else a.value),
    Field("raw", bool, "just the bytes in memory"),
    Field("points_to", (Fields(Field("kind", str), Field("text", str), rest=(bool, list, dict, *VALUE)), None)),
    Field("unreadable", TEXT, "why", read=or_none("why")),
)
_EXTENT = ([int], None)
COST = Fields(
    Field("launches_looked_at", int),
    *each(REAL, "seconds_each seconds_each_at_most"),
    Field("stops", int),
    Field("unnamed", int, "of functions without a known name, which passed"),
)
LAUNCH = Fields(  # of a `Launch`
    Field("kernel", TEXT, read=or_none("name")),
    Field("entry", TEXT, "the function stopped in", read=or_none("entry")),
    Field("function", TEXT, read=lambda f: Address(f.function) if f.function else None),
    Field("template", ([str], None), read=lambda f: [escape(t) for t in f.signature.template] if f.signature else None),
    *each(_EXTENT, "grid block cluster"),
    Field("shared_bytes", NUMBER),
    Field("stream", TEXT, read=lambda f: None if f.stream is None else Address(f.stream)),
    Field("arguments_counted", bool, "their number is known", read=lambda f: f.counted),
    Field("args", [ARGUMENT], read=lambda f: [ARGUMENT.data(a) for a in f.arguments]),
    Field("cost", (COST, None), "of looking at launches", read=lambda f: None),
)
PLACED = Fields(  # of a `KernelBreakpoint`
    Field("name", str),
    Field("condition", TEXT, read=or_none("condition")),
    Field("pending", bool),
    Field("breakpoints", [BREAKPOINT], read=lambda b: breakpoints_data(b)),
    Field("hidden", int, "without a number", read=lambda b: len(b.internal)),
    Field("kernels", int, read=lambda b: len(b.kernels)),
)
ROW = Fields(*PLACED, Field("done", bool), Field("logged", int), *COST)
ANSWER = Fields(*PLACED, Field("set", [ROW], "without NAME: each that is set, with its cost"), *SET.picked("deleted"))


def launch_lines(found: Launch, data: dict[str, Any], style: Style) -> list[str]:
    """A launch in lines: the kernel, grid and block, each argument."""
    name = names.short(found.name, 120) if found.name else f"function {found.function:#x} (its name is not known)"
    how = f"  through {found.entry}" if found.entry else "  on the device"
    lines = [style.name(escape(name)) + (how if found.grid is not None else "  (a function of the CPU)")]
    if found.grid is not None:
        triples = ["({},{},{})".format(*t) for t in (found.grid, found.block) if t is not None]
        cluster = "  cluster ({},{},{})".format(*found.cluster) if found.cluster else ""
        host = "" if found.stream is None else f"  shared {found.shared_bytes} B  stream {found.stream:#x}"
        lines.append(f"  grid {triples[0]}  block {triples[1]}{cluster}{host}")
    width = min(40, max([len(a["type"] or "") for a in data["args"]] + [3]))
    for a in data["args"]:
        if a["unreadable"]:
            value = style.bad(a["unreadable"])
        elif a["raw"]:
            value = " ".join(a["value"][i : i + 8] for i in range(0, len(a["value"]), 8)) + style.dim("  raw")
        else:
            value = hex(a["value"]) if isinstance(a["value"], Address) else escape(str(a["value"]))
        to = a["points_to"]
        lines.append(
            f"  #{a['index']:<3}{(a['type'] or '?')[:width]:<{width}}  {(a['name'] + ' = ') if a['name'] else ''}{value}"
            + (f"  {to['text']}" if to else "")
        )
        lines += ["      " + line for line in (to or {}).get("repr", "").splitlines()]
    if not data["arguments_counted"]:
        lines.append(
            style.dim("  how many arguments there are and of which types is not known: words that can be read are shown")
        )
    if data.get("cost"):
        lines.append(style.dim(cost_line(data["cost"])))
    return lines


def breakpoints_data(breakpoint: KernelBreakpoint) -> list[dict[str, Any]]:
    """The breakpoints with numbers of one llm-break."""
    kernels = list(dict.fromkeys(r.name for r in breakpoint.kernels if r.kernel.launch != "cpu" and r.kernel.role != "launcher"))
    found = []
    for one in breakpoint.numbered:
        own = [signatures.parse(one.symbol).name] if one.symbol else kernels
        through = ("every launch through " if breakpoint.always(one) else "launches through ") + one.entry
        found.append(
            BREAKPOINT.of(
                number=one.number,
                kernel=own[0] if len(own) == 1 else breakpoint.name,
                kernels=[escape(k) for k in own],
                where=through if one.entry else "function " + escape(own[0]),
                address=Address(int((one.location or "0").lstrip("*"), 16)),
                library=escape(one.library),
            )
        )
    for b in breakpoint.device:
        kernel, where = signatures.parse(b.name).name, "in the kernel, on the device"
        found.append(BREAKPOINT.of(number=b.number, kernel=kernel, where=where, address=None, library=escape(b.library)))
    return found


def breakpoint_lines(breakpoint: KernelBreakpoint, data: dict[str, Any], style: Style) -> list[str]:
    """The breakpoints that were set, for which processes, and what they cost or wait for."""
    lines = []
    for b in data["breakpoints"]:
        at = f" at {style.address(hex(b['address']))}" if b["address"] is not None else f" {b['kernel']}"
        lines.append(
            f"Breakpoint {b['number']}{at}: {b['where']}" + (f" in {os.path.basename(b['library'])}" if b["library"] else "")
        )
    for row in breakpoint.kernels[:MAX_SHOWN]:
        many = f", {row.instances} instances" if row.instances > 1 else ""
        library = escape(os.path.basename(row.library) or row.module)
        lines.append(f"  {style.name(escape(row.name))} ({row.kernel.backend or 'other'}{many}, {library})")
    if len(breakpoint.kernels) > MAX_SHOWN:
        lines.append(f"  … {len(breakpoint.kernels) - MAX_SHOWN} more kernels")
    if breakpoint.pending and breakpoint.kernels:
        lines.append(
            "its GPU code is here, but neither its host code nor the runtime's launch functions have names (stripped, or not "
            "loaded "
            "yet): it waits for a library that has them"
        )
    elif breakpoint.pending:
        lines.append(f"no library here has {escape(breakpoint.name)} yet: it is set when one that has it is loaded")
    if breakpoint.by_name:
        lines.append(
            "every launch of the process stops for a moment (llm-break alone shows the cost): these kernels have no "
            "launching "
            "code with a name to stop at"
        )
    if any(one.entry for one in breakpoint.numbered):
        lines.append(style.dim("host side, before the GPU runs; the replay of a CUDA graph passes no launch and is not seen"))
    return lines


def breakpoint_rows(breakpoints: list[KernelBreakpoint]) -> list[dict[str, Any]]:
    """Every llm-break that is set, with its cost so far."""
    return [ROW.of(**PLACED.data(b), done=b.done, logged=len(b.logged), **b.cost()) for b in breakpoints]


def row_lines(rows: list[dict[str, Any]], style: Style) -> list[str]:
    """`breakpoint_rows` in lines."""
    lines = []
    for r in rows:
        numbers = ", ".join(str(b["number"]) for b in r["breakpoints"]) or "pending"
        lines.append(
            f"{numbers}: {style.name(escape(r['name']))}"
            + (f" if {escape(r['condition'])}" if r["condition"] else "")
            + (f", {r['logged']} logged" if r["logged"] else "")
        )
        lines.append("  " + cost_line(r))
    return lines


def cost_line(cost: dict[str, Any]) -> str:
    """The cost of examining launches, in words."""
    if not cost["launches_looked_at"]:
        return "no launch was examined yet"
    line = f"{cost['stops']} stops, {cost['launches_looked_at']} launches examined, "
    line += f"{seconds(cost['seconds_each'])} each in gdbext"
    if cost["seconds_each_at_most"]:
        line += (
            f", {seconds(cost['seconds_each_at_most'])} from one to the next at best, gdb's own part and the program's included"
        )
    if cost["unnamed"]:
        line += f"; {cost['unnamed']} of functions without a known name passed "
        line += "(looked up before llm-break was set)"
    return line
