"""llm: what the pack has."""

from ..render.text import table
from .base import Answer, Command, clean

GROUPS = (
    ("ranks", "Ranks: find, attach, resume"),
    ("python", "Python: stacks and objects"),
    ("break", "Python: stop, step, log"),
    ("tensors", "Tensors"),
    ("kv", "KV cache"),
    ("kernels", "Kernels"),
    ("hang", "Hangs and snapshots"),
)


class Llm(Command):
    """List the commands of gdbext by group.

    (gdb) llm
    (gdb) help pybt"""

    name = "llm"
    reads = False
    alone = True

    def run(self, session, args):
        from . import table as registry

        rows = [{"name": c.name, "group": c.group, "summary": clean(c.__doc__).split("\n")[0]} for c in registry.load_all()]

        def text(style):
            parts = []
            for group, title in GROUPS:
                lines = [[style.name(r["name"]), r["summary"]] for r in rows if r["group"] == group]
                if lines:
                    parts.append(style.title(title) + "\n" + table(lines, ["  command", "does"], style).split("\n", 1)[1])
            return "\n".join(parts) + "\nhelp COMMAND tells more; every command takes -json."

        return Answer({"commands": rows}, text)
