"""llm: what the pack has."""

from __future__ import annotations

from ..errors import GdbextError
from ..render.text import table
from ..session.command import Answer, Args, Command
from ..session.session import Session
from .table import entries

GROUPS = (
    ("ranks", "Ranks: find, attach, resume"),
    ("python", "Python: stacks and objects"),
    ("break", "Python: stop, step, log"),
    ("tensors", "Tensors"),
    ("kv", "KV cache"),
    ("kernels", "Kernels"),
    ("hang", "Hangs and snapshots"),
    ("time", "Time: what each rank did"),
)


class Llm(Command):
    """List the commands of gdbext by group; `llm guide` tells what to do in which trouble.

    (gdb) llm
    (gdb) llm guide hang
    (gdb) help pybt"""

    name = "llm"
    operand = "[guide [TOPIC]]"
    takes_target = False
    standalone = True

    def complete(self, session: Session, text: str) -> list[str]:
        from .guide import GUIDE

        return list(GUIDE) if text.startswith("guide ") else ["guide"]

    def run(self, session: Session, args: Args) -> Answer:
        if args.operand_text:
            return guide(args.operand_text)
        rows = [{"name": e.name, "group": e.group, "summary": e.summary} for e in entries()]

        def text(style):
            parts = []
            for group, title in GROUPS:
                lines = [[style.name(r["name"]), r["summary"]] for r in rows if r["group"] == group]
                if lines:
                    parts.append(style.title(title) + "\n" + table(lines, ["  command", "does"], style).split("\n", 1)[1])
            return "\n".join(parts) + "\nhelp COMMAND tells more; every command takes -json."

        return Answer({"commands": rows}, text)


def guide(words: str) -> Answer:
    """The guide, or one topic of it."""
    from .guide import GUIDE

    first, _, topic = words.partition(" ")
    topic = topic.strip()
    if first != "guide" or (topic and topic not in GUIDE):
        raise GdbextError(f"llm: takes nothing, or guide and one of {', '.join(GUIDE)}")
    if topic:
        return Answer({"guide": {topic: GUIDE[topic]}}, GUIDE[topic])
    rows = [[name, text.split("\n")[0]] for name, text in GUIDE.items()]
    return Answer({"guide": GUIDE}, lambda style: table([[style.name(n), t] for n, t in rows], ["llm guide", "trouble"], style))
