"""llm-snapshot: small cores of running processes."""

from __future__ import annotations

import base64
import os
import zlib
from typing import Any

from ..access import resident
from ..access.snapshot import APART
from ..answers.each_node import FAILED
from ..answers.places import PAUSE, woken_text
from ..api import choosing
from ..errors import GdbextError
from ..render.fields import LEFT_OUT, NUMBER, REAL, TEXT, Field, Fields
from ..render.text import Style, escape, seconds, size
from ..session.command import HEAP, MAX_BYTES, Answer, Args, Command, Option, UsageError
from ..session.session import Session
from ..stacks import prefetch, snapshots
from .snapshot_reader import READER


def _on_disk(look: Any) -> int:
    return os.stat(look.file).st_blocks * 512 if os.path.isfile(look.file) else 0


TAKEN = Fields(
    Field("label", str),
    Field("pid", NUMBER),
    Field("file", TEXT),
    Field("bytes", int),
    Field("disk_bytes", int, read=_on_disk),
    Field("left_out_bytes", int, "private memory that is not in the file; -heap takes it", read=lambda look: look.left_out),
    Field("time", REAL, "when it was copied, seconds after the epoch", read=lambda look: look.moment),
    Field("image", str, "with -carry: the snapshot, by zlib and base64, and no file is written", read=lambda look: LEFT_OUT),
)


class LlmSnapshot(Command):
    """Write a small core of one or all ranks and let them run on; it is opened later like any core.

    Each process is stopped without a signal, copied and released; it runs on while the copy is written, also when gdb or the
    collector dies half-way. Of the copy the file keeps what answers need: registers and stacks of all threads, the interpreter,
    locks, tasks, the engine's tables and requests, the objects that the variables of each frame lead to, tensors of up to 64 KiB,
    small mappings and the memory map, without the command line and the environment, which may hold secrets.

    What it leaves out is said, and a command that needs it names the option: pyheap, pytensors, values of big tensors, objects
    far from every frame. -heap takes all private memory, -all shared memory too, -max-bytes at most so much; -with adds what an
    expression names, values of tensors included.

      (gdb) llm-snapshot TP0
      TP0  gdbext-TP0-4242.core  78.1 MiB  (77.9 MiB on disk)  paused 61.20 ms  left out: 371.2 MiB (-heap)
      (gdb) core-file gdbext-TP0-4242.core         or: llm-bt -all -on ./gdbext-TP0-4242.core

    Several processes are all copied first, in one moment; then what is kept is chosen and written. The answer says within which
    time they were copied, and that they are not of one moment where that is a second or more.

    The file holds what the memory holds, prompts too: it is readable by you alone. It is complete or not there at all, and is
    not written where the disk would have less than 256 MiB left. With several processes -o names a folder."""

    name = "llm-snapshot"
    copies = 1
    group = "hang"
    fields = Fields(Field("snapshots", [TAKEN]), Field("pauses", [PAUSE]), Field("failed", [FAILED]))
    operand = "WHAT..."
    completion = "what"
    takes_target = False
    standalone = True
    options = (
        Option("o", "str", "the file to write; for several processes a folder", metavar="FILE"),
        HEAP,
        Option("all", help="as -heap, and memory that is shared with other processes"),
        MAX_BYTES,
        Option(
            "with",
            "str",
            "a Python expression of the main thread whose value is copied too; may be repeated",
            metavar="EXPR",
            repeat=True,
        ),
        Option("force", help="replace earlier snapshots; no other core is ever replaced"),
        Option("carry", help="write no file: the answer holds the snapshot, for the library", for_agents=False),
    )

    def run(self, session: Session, args: Args) -> Answer:
        if not args.operand_text:
            raise UsageError("llm-snapshot: which process? an index or label of llm-ranks, a pid, several of these, or all")
        if args.max_bytes is not None and args.max_bytes < 0:
            raise UsageError("llm-snapshot: -max-bytes is 0 or more")
        found = choosing.resolve_processes(session, args.operand_text, routers=True)
        if any(one.pid is None for one in found):
            raise GdbextError(f"{args.operand_text} is a core file already")
        taken = snapshots.snapshots_of(found)
        paths = None if args.carry else _paths(taken, args.o)
        asked = args.heap or args.all or args.max_bytes is not None
        words = [prefetch.KV, *([] if asked else [prefetch.REACH]), *getattr(args, "with")]
        limit = snapshots.limit(args.heap, args.all, args.max_bytes) if asked else resident.SMALL
        reader = snapshots.READER if asked else READER
        take = snapshots.collect if len(taken) == 1 else snapshots.at_one_moment
        take(taken, paths, words, limit, reader=reader, force=args.force)
        done = [look for look in taken if look.target]
        if not done:
            raise GdbextError("; ".join(dict.fromkeys(look.reason for look in taken)))
        shots = [TAKEN.data(look) for look in done]
        if args.carry:
            shots = [{**shot, "image": _packed(look)} for look, shot in zip(done, shots)]
        data = self.fields.of(snapshots=shots, pauses=snapshots.pauses(taken), failed=snapshots.failed(taken))
        partial = [f"{look.name}: {reason}" for look in done for reason in look.partial]
        apart = max(look.moment for look in done) - min(look.moment for look in done)
        partial += [f"copied {seconds(apart)} apart: not of one moment"] if apart >= APART else []
        partial += [f"{len(done)} of {len(taken)} processes"] if len(done) < len(taken) else []

        def text(style: Style) -> str:
            width = max(len(look.name) for look in taken)
            lines = []
            for look, shot in zip(done, shots):
                lines.append(
                    f"{style.name(escape(look.name).ljust(width))}  {style.file(escape(look.file))}  {size(look.bytes)}"
                    f"  ({size(shot['disk_bytes'])} on disk)  {_stood(look)}"
                    + (f"  left out: {size(look.left_out)} (-heap)" if look.left_out else "")
                )
            woken = sum(look.woken for look in done)
            lines += [f"of one moment: copied within {seconds(apart)}"] if len(done) > 1 and apart < APART else []
            lines += [style.dim(woken_text(woken))] if woken else []
            lines += [style.bad(f"{escape(f['label']) or f['pid']}  not taken: {escape(f['reason'])}") for f in data["failed"]]
            return "\n".join(lines)

        return Answer(data, text, partial)


def _packed(look: Any) -> str:
    """A copy that has no name, in letters."""
    data = look.target.file.data
    return base64.b64encode(zlib.compress(bytes(data[0 : len(data)]), 1)).decode()


def _stood(look: Any) -> str:
    """How long it was paused. No time was measured where no thread of it was: all slept, or stood still already."""
    return f"paused {seconds(sum(look.pauses))}" if any(look.pauses) else "not paused"


def _paths(taken: Any, wanted: Any) -> list[Any]:
    names = ["gdbext-" + snapshots.file_name(look) for look in taken]
    if wanted is None:
        return [os.path.abspath(name) for name in names]
    wanted = os.path.abspath(os.path.expanduser(wanted))
    if len(taken) == 1 and not os.path.isdir(wanted):
        return [wanted]
    return [os.path.join(wanted, name) for name in names]
