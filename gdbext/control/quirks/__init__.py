"""Faults of gdb that the pack works round. `FAULTS` lists them all; those that need more than a few lines have a module here, the
others a comment where they are met. docs/upstream.md has the same list for gdb's maintainers.

`mended` is the first release that was seen without it: a work-round may go once older ones are not supported any more; "" where
each release that was tried has it. `bug` is a number of gdb's tracker; "" where none was found (searched on 28 November 2026)."""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """`what` gdb does; `seen` in which releases; `where` the pack works round it: modules below gdbext/."""

    name: str
    what: str
    seen: str
    where: tuple[str, ...]
    mended: str = ""
    bug: str = ""


FAULTS = (
    Fault(
        "event-lost",
        "an event of one process that comes while others are being stopped is not asked for at the next resume: gdb waits for "
        "ever",
        "13.1 (infrun.c, do_target_wait, handle_no_resumed)",
        ("control/quirks/wakeups",),
    ),
    Fault(
        "vfork-stall",
        "in all-stop mode gdb stops a vfork child and then waits for its parent, which cannot stop before the child has "
        "begun its program",
        "13.1, 18.1 (linux-nat.c, stop_wait_callback)",
        ("control/quirks/vfork_stalls",),
    ),
    Fault(
        "debug-registers",
        "after an exec the kernel has cleared the debug registers and gdb's record of them stays: a breakpoint at an address "
        "that a parent has too is never armed",
        "13 to 18 (nat/x86-dregs.c)",
        ("control/hw_breakpoints",),
    ),
    Fault(
        "late-trap",
        "gdb killed before it has fetched a debug trap leaves SIGTRAP to the process, which ends it",
        "all: ptrace's own way",
        ("control/quirks/urgency", "control/protection"),
    ),
    Fault(
        "child-step",
        "gdb steps each child of a fork by an instruction before it detaches; a gdb that is killed then leaves a trap, of which "
        "the child dies, and one killed before leaves it stopped",
        "all (linux-nat.c, follow_fork)",
        ("control/quirks/fork_events", "access/recovery"),
    ),
    Fault(
        "loader-breakpoint",
        "gdb keeps a breakpoint in the dynamic loader of each running process and has no command to leave it out; it outlives a "
        "gdb that is killed",
        "all",
        ("control/quirks/loader_breakpoints",),
    ),
    Fault(
        "no-regular-file",
        "gdb opens what the loader's list of libraries names, a FIFO or /proc/self/fd/N too, and waits for it with the process "
        "stopped",
        "all",
        ("control/quirks/stuck_open",),
    ),
    Fault(
        "frame-filter",
        "a frame filter cannot give one native frame several frames with numbers of their own",
        "all",
        ("frame_filters/python",),
    ),
    Fault(
        "dap-requests",
        "gdb's DAP server has no public way to add or replace a request",
        "14 to 18.1, all that speak DAP",
        ("dap/requests", "dap/server"),
    ),
    Fault(
        "memory-of-another",
        "Inferior.read_memory reads the memory of the inferior that is selected, whichever it is called on",
        "up to 13",
        ("access/live_gdb",),
        mended="14",
    ),
    Fault(
        "inferior-prints",
        "`inferior N` prints its new selection even where its output is captured",
        "12 to 18",
        ("access/live_gdb",),
    ),
    Fault(
        "commands-elsewhere",
        "a breakpoint's commands run in the selected thread, not in the one that stopped",
        "16 to 18, and any in non-stop mode",
        ("control/follow",),
    ),
    Fault(
        "ended-inferior",
        "a process that ended while gdb dealt with another keeps the rest from being resumed until it is detached",
        "13.1",
        ("control/follow",),
    ),
    Fault(
        "crash-at-the-end",
        "gdb crashes where internal breakpoints or posted functions outlive its Python, and now and then at SIGTERM",
        "13",
        ("control/hw_breakpoints", "control/attached_processes", "control/follow"),
    ),
    Fault(
        "crash-program-is-library",
        "gdb aborts where one file is a process's program and another's library",
        "13",
        ("control/attach",),
    ),
    Fault(
        "crash-deleted-breakpoint",
        "a breakpoint that is deleted while gdb walks its list crashes gdb",
        "each that was tried",
        ("control/kernel_breakpoints",),
    ),
    Fault(
        "execute-in-stop",
        "gdb.execute within Breakpoint.stop() loses gdb's event loop",
        "13",
        ("control/kernel_breakpoints", "control/launch_breakpoints"),
    ),
    Fault(
        "another-none",
        "cuda-gdb 11.8 gives a None that is not Python's own: `is None` fails",
        "cuda-gdb 11.8 (Debian)",
        ("control/cudagdb", "control/gdb_state", "access/live_gdb", "access/libraries", "access/dwarf_gdb"),
        mended="cuda-gdb 13.0 does not do it; none between was tried",
    ),
)
