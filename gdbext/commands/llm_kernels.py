"""llm-kernels: which attention kernels a process has and where one can stop at them."""

from __future__ import annotations

import os
import re
from typing import Any

from .. import log
from ..access.base import Target
from ..errors import GdbextError
from ..kernels import catalogue as catalogues
from ..render.fields import NUMBER, TEXT, Field, Fields, or_none
from ..render.jsonline import Address
from ..render.text import Style, escape
from ..session.command import Answer, Args, Command, Option, UsageError
from ..session.session import Session


def compiled(pattern: str) -> re.Pattern[str]:
    """A user's regular expression, or a `UsageError`."""
    try:
        return re.compile(pattern)
    except re.error as e:
        raise UsageError(f"{pattern!r} is no regular expression: {e}") from None


def searched(
    session: Session, args: Args, pattern: re.Pattern[str] | None = None
) -> tuple[Target, list[Any], list[Any], list[str]]:
    """`catalogue.search` of the process that a command reads; -> (target, rows, entries, reasons for partial)."""
    target = session.target(args.on)
    rt, partial = None, session.partial(target)
    try:
        rt = session.runtime(args.on)
    except GdbextError as e:
        log.passed_over(e)  # no Python there: then no Triton either
    rows, entries, unread = target.cached(
        ("kernels", pattern and pattern.pattern), lambda: catalogues.search(target, pattern, rt)
    )
    if unread:
        names = ", ".join(sorted(map(os.path.basename, unread))[:4])
        partial = [*partial, f"{len(unread)} libraries could not be read: {names}"]
    return target, rows, entries, partial


def _library(k: Any, style: Style) -> str:
    return escape(os.path.basename(k["library"]) or k["module"] or "")


def _sites(row: Any) -> list[dict[str, Any]]:
    return [{"address": Address(p.address), "kind": p.kind, "name": escape(p.signature.text)} for p in row.sites]


KERNEL = Fields(  # of a row of the catalogue that was found in the process
    Field("name", str, head="kernel", draw=lambda k, style: style.name(k["name"])),
    Field("role", str, read=lambda r: r.kernel.role, head="role"),
    Field("backend", TEXT, read=lambda r: r.kernel.backend or None, head="backend"),
    Field("where", str, "`host`, `device` or `driver`: what names it, and so where llm-break stops", head="where"),
    Field("instances", NUMBER, "of its template", head="instances", cell=lambda n: str(n or "")),
    Field("library", str, "its path", head="library", draw=_library),
    Field("engine", TEXT, read=or_none("engine")),
    Field("launch", (str, None), "how it is launched", read=lambda r: r.kernel.launch),
    Field("releases", TEXT, "of the engine that have it", read=lambda r: r.kernel.releases or None),
    Field("module", TEXT, "Python's, of a kernel that is compiled there", read=or_none("module")),
    Field("locations", [Fields(Field("address", str), Field("kind", str), Field("name", str))], read=_sites),
)
ENTRY = Fields(Field("name", str), Field("address", str), Field("library", str))
ANSWER = Fields(Field("kernels", [KERNEL]), Field("entries", [ENTRY], "the functions through which every launch goes"))


class LlmKernels(Command):
    """List the attention and KV-cache kernels that a process has, and where one can stop at them.

      (gdb) llm-kernels
      kernel                             role       backend            where  instances  library
      vllm::paged_attention_v1_kernel    attention  csrc               host         486  _C.abi3.so
      flash::flash_fwd_splitkv_kernel    attention  flash-attention 2  host         800  _vllm_fa2_C.abi3.so
      kernel_unified_attention           attention  triton             driver            vllm.v1.attention.ops.triton_unified_…
      launches pass: cudaLaunchKernel (libcudart.so.12), cuLaunchKernelEx (libcuda.so.1)

    where says what llm-break can do: host: it stops at this very kernel's own launching code; driver: the kernel is launched by
    name through the driver, every launch is looked at; device: only GPU code names it: the same. What strip took away is read out
    of the code that registers the kernels: host, but every launch is looked at. With REGEX, kernels whose whole
    demangled name fits it, those that launch anything else included; -instances lists each template instance with its address.

    No symbol is loaded into gdb: the libraries' own tables are searched, a gigabyte takes a second or two."""

    name = "llm-kernels"
    fields = ANSWER
    group = "kernels"
    operand = "[REGEX]"
    options = (Option("instances", help="each template instance with its address"),)

    def run(self, session: Session, args: Args) -> Answer:
        pattern = compiled(args.operand_text) if args.operand_text else None
        _, rows, entries, partial = searched(session, args, pattern)
        data = {
            "kernels": [KERNEL.data(r) for r in rows],
            "entries": [{"name": n, "address": Address(a), "library": escape(path)} for n, a, path in entries],
        }
        return Answer(data, lambda style: listing(data, pattern is not None, args.instances, style), partial)


def listing(data: dict[str, Any], searched_for: bool, instances: bool, style: Style) -> str:
    """The kernels as a table; `searched_for`: a pattern was given; `instances`: with every place of each."""
    lines = [
        "no kernel that fits is in its libraries"
        if searched_for
        else "no attention kernel that the catalogue knows is in its libraries"
    ]
    if data["kernels"]:
        lines = [KERNEL.table(data["kernels"], style)]
    for k in data["kernels"] if instances else ():
        lines += [f"  {style.address(hex(at['address']))} {at['kind']:<8} {at['name']}" for at in k["locations"]]
    seen = dict.fromkeys(f"{e['name']} ({os.path.basename(e['library'])})" for e in data["entries"])
    lines.append("launches pass: " + ", ".join(seen) if seen else style.dim("no launch function of CUDA or HIP is mapped"))
    return "\n".join(lines)
