"""A CUDA core dump as JSON and as text, and the environment that makes an engine write one."""

from __future__ import annotations

from typing import Any

from ..errors import GdbextError
from ..kernels import gpucore
from ..render import names
from ..render.fields import NUMBER, TEXT, Field, Fields, each, or_none
from ..render.jsonline import Address
from ..render.text import Style, escape, size

SHOWN = 16  # faults and kernels in text


SETUP = """\
# Before the engine starts, in the environment of its workers (they read it when CUDA is initialised):
export CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1
export CUDA_COREDUMP_SHOW_PROGRESS=1
export CUDA_COREDUMP_FILE=/tmp/gpucore.%h.%p.%t
# Without skip_global_memory the file is as large as the GPU memory in use; with it, it holds no tensor's values:
export CUDA_COREDUMP_GENERATION_FLAGS={flags}
# For a hang: a dump on request, of a process that still runs.
export CUDA_ENABLE_USER_TRIGGERED_COREDUMP=1
export CUDA_COREDUMP_PIPE=/tmp/corepipe.%h.%p

# A hung engine: one byte into the pipe of each worker whose GPU is to be dumped, then wait for the file (llm-ranks tells the
# pids)
for pipe in /tmp/corepipe.$(hostname).*; do [ -p "$pipe" ] && printf x > "$pipe"; done
llm-gpucore /tmp/gpucore.HOST.PID.TIME

# Not while cuda-gdb is attached to the process: it takes the exceptions itself. Under Ray set them in the runtime_env of the
# workers; in a container mount /tmp so that the file outlives it.
{release}"""


FLAGS = "skip_nonrelocated_elf_images,skip_global_memory,skip_shared_memory,skip_local_memory,skip_constbank_memory"


RELEASES = (
    # first release, the difference from it on
    (
        (11, 4),
        "CUDA 11.4 to 12.4: the CPU core comes along; CUDA_ENABLE_CPU_COREDUMP_ON_EXCEPTION=0 leaves it out. "
        "Before the flags (12.4 or older drivers ignore unknown ones) CUDA_ENABLE_LIGHTWEIGHT_COREDUMP=1 leaves all memory out.",
    ),
    (
        (12, 5),
        "CUDA 12.5 to 12.9: CUDA_ENABLE_CPU_COREDUMP_ON_EXCEPTION is deprecated: "
        "add skip_abort to the flags and no CPU core comes along. "
        "CUDA_ENABLE_LIGHTWEIGHT_COREDUMP still works.",
    ),
    (
        (13, 0),
        "CUDA 13: CUDA_ENABLE_LIGHTWEIGHT_COREDUMP is gone: the flags alone decide. "
        "skip_abort lets the process live on after the dump.",
    ),
)


def function(mangled: str) -> str:
    return escape(names.demangle(mangled)) if mangled else ""


_EXTENT = ([int], None)
_EXCEPTION = Field("exception", TEXT, read=lambda one: gpucore.exception_name(one.exception))
DEVICE = Fields(Field("index", int), *each(str, "name architecture"), Field("sms", int), _EXCEPTION)
PLACE = Fields(  # of (warps, pc, name, offset)
    Field("warps", int, read=lambda p: p[0]),
    Field("pc", str, read=lambda p: Address(p[1])),
    Field("function", str, read=lambda p: function(p[2])),
    Field("offset", NUMBER, "in it", "bytes", lambda p: p[3]),
)
KERNEL = Fields(
    Field("name", str, read=lambda k: function(k.name)),
    Field("device", int, read=lambda k: k.device.index),
    *each(_EXTENT, "grid block"),
    _EXCEPTION,
    Field("id", int),
    Field("entry", str, read=lambda k: Address(k.entry)),
    *each(NUMBER, "host_tid blocks warps"),
    Field("places", [PLACE], "where its warps are", read=lambda k: [PLACE.data(p) for p in k.places]),
)


def _address(value: int | None) -> Address | None:
    return None if value is None else Address(value)


FAULT = Fields(  # of a thread that stopped with an exception
    Field("device", int, read=lambda f: f.device.index),
    Field("kernel", TEXT, read=lambda f: function(f.kernel.name) if f.kernel else None),
    *each(_EXTENT, "block thread"),
    Field("pc", TEXT, read=lambda f: _address(f.pc)),
    Field("address", TEXT, "that was touched", read=lambda f: _address(f.address)),
    _EXCEPTION,
    Field("function", str, read=lambda f: function(f.function)),
    Field("offset", NUMBER, "in it", "bytes"),
    Field("precise", bool, "the exception is of this very instruction"),
    *each(NUMBER, "sm warp lane"),
    Field("threads", NUMBER, "of its warp that failed", read=lambda f: f.lanes),
    Field("grid", NUMBER, read=lambda f: f.kernel.id if f.kernel else None),
    Field("text", str),
    Field("address_from", TEXT, "`instruction`: worked out from it and its registers", read=or_none("told_by")),
)
CORE = Fields(
    Field("file", str, read=lambda core: core.path),
    Field("devices", [DEVICE], read=lambda core: [DEVICE.data(d) for d in core.devices]),
    Field("kernels", [KERNEL], "that ran", read=lambda core: [KERNEL.data(k) for k in core.kernels]),
    Field("faults", [FAULT], "warps with an exception", read=lambda core: [FAULT.data(f) for f in core.faults]),
    Field("global_memory", int, "in the file", "bytes", lambda core: sum(length for _, length in core.memory)),
)
ANSWER = Fields(
    *CORE,
    Field("setup", str, "with -setup, alone: lines for a shell"),
    Field("releases", [Fields(*each(str, "from text"))], "with -setup: what differs from each on"),
)


def short(name: str, limit: int = 100) -> str:
    """A demangled name for one line."""
    return names.short(name, limit) if name else "??"


def summary_text(data: dict[str, Any], style: Style) -> str:
    lines = []
    for d in data["devices"]:
        lines.append(f"device {d['index']}  {style.title(d['name'])}  {d['architecture']}  {d['sms']} SMs")

    def triples(t: Any) -> str:
        return "(" + ",".join(map(str, t)) + ")"

    def place(pc: Any, name: str, offset: Any) -> str:
        return style.address(hex(pc)) + (f" <{short(name, 60)}+{offset:#x}>" if name else " (no function known)")

    alike: dict[Any, list[Any]] = {}
    for f in data["faults"]:  # thousands of threads fail at one instruction
        alike.setdefault((f["exception"], f["kernel"], f["device"], f["pc"], f["precise"], f["text"]), []).append(f)
    for f, *others in list(alike.values())[:SHOWN]:
        lines.append(
            style.bad(f["exception"] or "an exception of unknown kind")
            + (f" in {style.name(short(f['kernel']))}" if f["kernel"] is not None else "")
        )
        who = f"block {triples(f['block'])} " if f["block"] else ""
        who += f"thread {triples(f['thread'])}" if f["thread"] else "no thread named" if f["block"] else "no block named"
        more = "" if f["threads"] < 2 else f" and {f['threads'] - 1} more of its warp"
        where = "".join(f" {k} {f[k]}" for k in ("warp", "lane") if f[k] is not None)
        lines.append(f"  {who}{more}  device {f['device']} SM {f['sm']}{where}")
        if f["pc"] is not None:
            lines.append(
                f"  at {place(f['pc'], f['function'], f['offset'])}"
                + ("" if f["precise"] else style.dim("  (where the thread is: the exception is imprecise)"))
            )
        by = style.dim("  (worked out from the instruction and its registers)") if f["address_from"] == "instruction" else ""
        lines.append(
            f"  touched {style.address(hex(f['address']))}{by}"
            if f["address"] is not None
            else style.dim("  which address was touched is not known")
        )
        if f["text"]:
            lines.append("  " + f["text"])
        if others:
            blocks = {str(o["block"]) for o in (f, *others)}
            lines.append(f"  and {len(others)} more warps at the same instruction, in {len(blocks)} blocks (-json lists each)")
    if len(alike) > SHOWN:
        lines.append(f"… {sum(map(len, list(alike.values())[SHOWN:]))} more warps faulted")
    if not data["faults"]:
        lines.append("no thread faulted: a dump on request shows where each kernel is")
    for k in data["kernels"][:SHOWN]:
        lines.append(
            f"kernel {style.name(short(k['name']))}  device {k['device']} grid {k['id']}: "
            f"{triples(k['grid'])} blocks of {triples(k['block'])}, "
            f"{k['blocks']} blocks in {k['warps']} warps resident"
        )
        for p in k["places"]:
            lines.append(f"  {p['warps']} warps at {place(p['pc'], p['function'], p['offset'])}")
    if len(data["kernels"]) > SHOWN:
        lines.append(f"… {len(data['kernels']) - SHOWN} more kernels")
    if not data["kernels"]:
        lines.append("no kernel was running")
    if data["global_memory"]:
        lines.append(f"{size(data['global_memory'])} of global memory in the file")
    return "\n".join(lines)


def setup_data(cuda: str | None) -> dict[str, Any]:
    """The fields of llm-gpucore -setup: the lines for a shell, as the release `cuda` needs them ("12.8"; without it, for each
    release)."""
    wanted = list(RELEASES)
    if cuda:
        major, _, minor = cuda.partition(".")
        if not (major.isdigit() and (minor or "0").isdigit()):
            raise GdbextError(f"-cuda {cuda}: give a release such as 12.8")
        release = (int(major), int(minor or 0))
        wanted = [r for r in RELEASES if r[0] <= release][-1:]
        if not wanted:
            raise GdbextError(f"-cuda {cuda}: GPU cores need CUDA 11.4 or newer")
    text = SETUP.format(flags=FLAGS, release="\n".join("# " + line for _, line in wanted))
    releases = [{"from": ".".join(map(str, first)), "text": line} for first, line in wanted]
    return ANSWER.of(setup=text, releases=releases)
