"""How tests ask each command: one row, for all tests that go through all commands."""

import re
from typing import List, NamedTuple, Optional, Sequence, Tuple

from gdbext.__main__ import SETUP
from gdbext.commands import table

# Threads that run, wait for a lock and sleep, tasks, an exception in flight, and functions that a spinning thread may change.
SUBJECT = """
import asyncio, itertools, threading, time
lock, counts, seen = threading.Lock(), [0], {"a": 1}
def spins():
    for i in itertools.count():
        counts[0] = len(seen) + i
        if not i % 10000:
            time.sleep(0.05)  # for as long as a file's tests go on: the processors are others' too
def waits():
    with lock:
        pass
async def main():
    tasks = [asyncio.create_task(asyncio.sleep(900), name=f"task-{i}") for i in range(3)]
    await asyncio.gather(*tasks)
def handles():
    try:
        {}["missing"]
    except KeyError:
        threading.Event().wait()
lock.acquire()
for one in (spins, waits, lambda: asyncio.run(main()), handles):
    threading.Thread(target=one, daemon=True).start()
time.sleep(0.5)
print("ready", flush=True)
threading.Event().wait()
"""
OK, NO, ANY = (0, 3), (1,), (0, 1, 3)


class Asked(NamedTuple):
    """How tests ask a command: words that follow its name.

    * `lines`: outside gdb, (words, exit statuses, what it says); P is a process, D a new folder, G a core of a GPU, C a snapshot
      of P. None: it acts on gdb's own inferiors
    * `live`, `both`, `kv`: its JSON fields and hostile text are looked at, for a process, for a snapshot of it too, and for a
      stand-in engine; in braces what the subject says of itself. `fields_by`: what holds them instead
    * `private_live`, `private`: its answers are searched for users' content, likewise; `content_by`: what holds that instead
    * `in_gdb`: inside gdb, on a process that it has attached
    * `more`: on a terminal too; E is a stand-in engine. `table`: it shows one, which is never wider than the screen
    """

    lines: Optional[List[Tuple[str, Tuple[int, ...], str]]] = None
    live: Sequence[str] = ()
    both: Sequence[str] = ()
    kv: Sequence[str] = ()
    private_live: Sequence[str] = ()
    private: Sequence[str] = ()
    more: Sequence[str] = ()
    in_gdb: str = ""
    fields_by: str = ""
    content_by: str = ""
    table: bool = False


ROWS = {
    "pybt": Asked(
        [("-all -locals -on P", OK, "spins")], both=("-on {on}", "-all -locals -on {on}"), private=("-all -locals -on {on}",)
    ),
    "llm": Asked([("guide", OK, "llm-hang")], live=("", "guide"), in_gdb="", content_by="speaks of the pack"),
    "llm-ranks": Asked(
        [("", OK, '"ranks"')],
        private_live=("",),
        more=("E",),
        fields_by="its rows are the machine's processes: tests of its own",
        table=True,
    ),
    "llm-bt": Asked(
        [("-all -on P", OK, '"threads"'), ("-still -on P", OK, '"pauses"')],
        both=("-on {on}", "-all -on {on}"),
        private=("-all -locals -on {on}",),
    ),
    "pyframe": Asked([("0 -on P", OK, '"frame"')], both=("1 -on {on}",), in_gdb="1", content_by="asked as pybt"),
    "pyup": Asked([("0 -on P", OK, '"frame"')], both=("-on {on}",), in_gdb="1", content_by="asked as pybt"),
    "pydown": Asked([("0 -on P", OK, '"frame"')], in_gdb="1", fields_by="as pyup"),
    "pylist": Asked([("-on P", ANY, "")], both=("-on {on}",), content_by="shows source"),
    "pylocals": Asked([("-on P", OK, '"locals"'), ("-still -on P", OK, '"pauses"')], both=("-on {on}",), private=("-on {on}",)),
    "pyprint": Asked(
        [("sorted(seen.items())+[len(counts)] -on P", OK, "('a', 1), 1")],
        both=("{request} -on {on}", "__main__:first -on {on}", "[1, 'a', 2.5] -on {on}"),
        in_gdb="seen",
    ),
    "pythreads": Asked(
        [("-on P", OK, '"threads"'), ("-samples 3 -on P", OK, '"samples"')],
        live=("-samples 5 -on {pid}",),
        both=("-on {on}",),
        private_live=("-samples 3 -on {on}",),
        more=("-on E",),
        table=True,
    ),
    "pyexc": Asked([("-locals -on P", OK, "KeyError")], both=("-locals -on {on}",), private=("-locals -on {on}",)),
    "pytasks": Asked(
        [("-all -on P", OK, "task-1"), ("-still -on P", OK, "task-1")],
        both=("-all -locals -on {on}",),
        private=("-all -locals -on {on}",),
    ),
    "pytensor": Asked(
        [("counts -on P", NO, "error")],
        both=(
            "{matrix} -on {on}",
            "{matrix} -slice 1:,::2 -on {on}",
            "{matrix} -stats -hist -bins 3 -on {on}",
            "{matrix} -compare {matrix} -on {on}",
        ),
        in_gdb="seen",
        content_by="shows what is asked for by name",
    ),
    "pytensors": Asked(
        [("-on P", ANY, "")],
        both=("-on {on}", "-nan -on {on}"),
        private=("-on {on}", "-save {folder}/t.json -force -on {on}"),
        table=True,
    ),
    "pyheap": Asked(
        [
            ("-on P -all -save D/heap", ANY, '"pyheap/1"'),
            ("-on C", ANY, '"pyheap/1"'),
            ("-on P -diff D/heap -unstopped", ANY, '"pyheap/1"'),
        ],
        live=("-on {pid}",),
        private=("-save {folder}/h.json -force -on {on}",),
        table=True,
    ),
    "llm-inject": Asked(
        [("debugpy P", NO, "-unsafe")], in_gdb="faulthandler 0", fields_by="writes to the process: its own tests"
    ),
    "llm-profile": Asked([("start P", NO, "error")], in_gdb="start 0", fields_by="writes to the process: its own tests"),
    "llm-layers": Asked([("-compare D/a D/b", NO, "error")], in_gdb="-compare a b", fields_by="steps the process: its own tests"),
    "llm-kv": Asked(
        [("-on P", NO, "error")],
        kv=("-on {pid}", "block 1 -on {pid}", "request req-a -on {pid}", "free -on {pid}", "map -on {pid}", "check -on {pid}"),
        private=("-on {on}", "check -on {on}", "map -on {on}", "block 1 -on {on}"),
    ),
    "llm-requests": Asked(
        [("P", ANY, "")],
        kv=("-on {pid}",),
        more=("E",),
        in_gdb="{P}",
        content_by="tests/engines/test_content.py asks it",
        table=True,
    ),
    "llm-request": Asked(
        [("req-1 -on P", NO, "error")],
        in_gdb="x",
        fields_by="the answer of llm-requests about one of them, and its tests",
        table=True,
    ),
    "llm-memory": Asked(
        [("P", OK, '"parts"'), ("-o D/blocks.json P", NO, "torch has set up no GPU in it")],
        live=("{pid}",),
        private_live=("{on}",),
        more=("E",),
        in_gdb="{P}",
        table=True,
    ),
    "llm-addr": Asked([("0x10 -on P", ANY, "")], both=("{request} -on {on}", "{data} -on {on}", "0x10 -on {on}"), in_gdb="0x10"),
    "llm-kernels": Asked([("-on P", ANY, "")], live=("-on {pid}",), private=("-on {on}",), table=True),
    "llm-gpucore": Asked(
        [("-setup", OK, "CUDA_ENABLE"), ("G", OK, '"devices"')], in_gdb="-setup", fields_by="reads a GPU's core: its own tests"
    ),
    "llm-snapshot": Asked(
        [
            ("P -o D/x.core -with counts", OK, '"snapshots"'),
            ("P -max-bytes 0 -o D/y.core", OK, '"snapshots"'),
            ("P -all -o D/z.core", OK, '"left_out_bytes"'),
            ("P -heap -o D/h.core", OK, '"left_out_bytes"'),
            ("P -max-bytes 0 -carry", OK, '"image"'),
        ],
        live=("{pid} -o {folder}/again.core",),
        in_gdb="{P} -o {D}/in-gdb.core",
        content_by="its file is a copy of memory",
    ),
    "llm-diff": Asked(
        [("C P", OK, '"threads"')],
        live=("{pid} {pid}",),
        private_live=("{on} {on}",),
        in_gdb="{P} {P}",
    ),
    "llm-bundle": Asked(
        [("P -wait 0.1 -o D/b.gdbext", OK, '"processes"')],
        live=("{pid} -wait 0.1 -o {folder}/again.gdbext -force",),
        in_gdb="{P} -wait 0.1 -o {D}/in-gdb.gdbext",
        content_by="test_private_content.py looks at every byte of its file",
    ),
    "llm-stacks": Asked(
        [
            ("P -html D/s.html -folded D/s.txt", OK, "spins"),
            ("P -samples 3", OK, "spins"),
            ("P -unstopped", OK, "spins"),
            ("C", OK, "spins"),
        ],
        live=("{pid}", "-samples 2 -interval 0.1 {pid}"),
        private_live=("-samples 2 -interval 0.1 -html {folder}/s.html -folded {folder}/s.folded {on}",),
        in_gdb="{P}",
    ),
    "llm-locks": Asked([("P", OK, '"edges"')], live=("{pid}",), private_live=("{on}",), in_gdb="{P}"),
    "llm-hang": Asked(
        [("P", OK, '"verdict"'), ("C", OK, '"verdict"')],
        live=("-wait 0.3 {pid}",),
        private_live=("-wait 0.2 {on}",),
        in_gdb="{P}",
    ),
    "llm-watch": Asked(
        [("P -after 0.3 -for 2 -o D", ANY, '"looks"')],
        in_gdb="{P} -after 0.3 -for 1 -o {D}",
        fields_by="runs until it is ended: its own tests",
    ),
    "llm-report": Asked(
        [("D/r.html P", OK, '"verdict"')],
        live=("{folder}/report.html {pid} -wait 0",),
        private_live=("{folder}/report.html {on} -wait 0.1",),
        in_gdb="{D}/in-gdb.html",
    ),
    "llm-record": Asked(
        [
            ("P -for 0.5 -o D/a.record -o D/a.html -o D/a.json", OK, '"functions"'),
            ("P -for 0.3 -native -o D/b.record", OK, '"functions"'),
            ("-read D/a.record", OK, '"functions"'),
            ("-read D/a.record -with D/a.json -o D/w.json", OK, '"beside"'),
            ("-diff D/a.record D/b.record -o D/d.html", OK, '"differences"'),
        ],
        live=("-for 0.2 -o {folder}/a.record {pid}",),
        private_live=(
            "-for 0.5 -force -o {folder}/r.record -o {folder}/r.json -o {folder}/r.html -o {folder}/r.collapsed {on}",
            "-native -for 0.5 -force -o {folder}/n.record {on}",
        ),
        in_gdb="{P} -for 0.2",
        table=True,
    ),
    "llm-top": Asked(
        [("P -once", OK, '"ranks"')],
        live=("-once -interval 0.2 {pid}",),
        private_live=("-once -interval 0.2 {on}",),
        more=("-once E", "-frames 2 E"),
        in_gdb="-once {P}",
        table=True,
    ),
    "doctor": Asked([("", ANY, '"checks"')]),
    "install": Asked([("--gdbinit D/gdbinit --no-wheels", OK, '"install/1"')]),
    "uninstall": Asked([("--gdbinit D/gdbinit --no-wheels", OK, '"uninstall/1"')]),
    "cache": Asked([("clear", OK, '"files"')]),
    "allow": Asked([("-print", OK, "gdbext_allow")]),
    "completion": Asked([("bash", OK, "complete -o default")]),
    "gdb": Asked([("", OK, "init.py")]),
    "skill": Asked([("D/skill", OK, "SKILL.md")]),
    "vscode": Asked([("-pick", OK, '"launch"')]),
    "mcp": Asked([("--limit 5", ANY, "")]),
    "pylog": Asked(in_gdb='spins "{{i}}"'),
    "pytrace": Asked(in_gdb="nobody"),
    "pybreak": Asked(in_gdb="nobody:7"),
    "pyuntil": Asked(in_gdb="x"),
    "pycatch": Asked(in_gdb=""),
    "llm-break": Asked(in_gdb=""),
    "llm-save": Asked(in_gdb="x=spins i"),
    "llm-apply": Asked(in_gdb="all pybt"),
    "llm-attach": Asked(in_gdb="{P}"),
    "llm-follow": Asked(in_gdb=""),
    "pynext": Asked(in_gdb="x"),
    "pystep": Asked(in_gdb="x"),
    "pyfinish": Asked(in_gdb="x"),
    "llm-continue": Asked(in_gdb="nobody"),
    "llm-detach": Asked(in_gdb="nobody"),
    "llm-symbols": Asked(table=True),
}


def _usual(command):
    """How a command without a row is asked, as its class says what it takes; one whose operand must be there needs a row."""
    if command.gdb_only:
        return Asked()
    assert command.operand[:1] in ("", "["), f"{command.name} needs a row in tests/harness/command_lines.py"
    before = "" if "WHAT" in command.operand or not command.takes_target else "-on "
    on = (before + "{on}",) if before or "WHAT" in command.operand else ("",)
    says = f'"{command.name}/1"'
    return Asked([((before + "P") * bool(on[0]), OK, says)], both=on, private=on, in_gdb="{P}" * (not before and bool(on[0])))


ASKED = {**{c.name: ROWS.get(c.name) or _usual(c) for c in table.load_all()}, **{name: ROWS[name] for name in SETUP}}
LINES = {name: one.lines for name, one in ASKED.items() if one.lines is not None}


def all_of(*which):
    """The command lines of all commands in some fields of `Asked`."""
    return tuple(f"{name} {words}".rstrip() for name, one in ASKED.items() for each in which for words in getattr(one, each))


def words_of(line, place):
    """The words of a line of `LINES`. `place`: {letter: what it stands for}."""
    return [re.sub(r"^[PDGCE](?=$|/)", lambda m: place[m[0]], word) for word in line.split()]
