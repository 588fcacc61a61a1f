"""The words that people type out of habit, of py-spy, pystack, memray, gdb and the shell, as the commands that they mean here."""

from __future__ import annotations

import os
from typing import Sequence

from . import table

# word -> (command, options); the longest words are tried first
VERBS = {
    "dump": ("pybt", ("-all",)),  # py-spy
    "remote": ("pybt", ("-all",)),  # pystack
    "core": ("pybt", ("-all",)),
    "thread apply all bt": ("llm-bt", ("-all",)),
    "info threads": ("pythreads", ()),
    "ps": ("llm-ranks", ()),
    "gcore": ("llm-snapshot", ()),
    "p": ("pyprint", ()),
}
NATIVE = ("-n", "--native", "-native", "--native-all")  # with which stacks of Python are of both kinds
CHILDREN = ("-s", "--subprocesses", "-subprocesses")
HINTS = {  # what other tools have and there is no one command for
    "attach": "in gdb: llm-attach WHAT",
    "flamegraph": "record -o flame.html PID",
    "live": "llm-memory PID, pyheap PID",
    "run": "record -o flame.html -- COMMAND",
    "stats": "pyheap PID",
    "summary": "pyheap PID",
    "tree": "pyheap PID",
    "strace": "llm-stacks PID",
    "guide": "llm guide",
}


def command_of(words: Sequence[str]) -> tuple[str, list[str]]:
    """-> (the name of a command, its words): for a short name (`stacks`, `heap`) and for another tool's; as it is otherwise."""
    if not words:
        return "", []
    for count in range(min(4, len(words)), 0, -1):
        verb = VERBS.get(" ".join(words[:count]))
        if verb is not None:
            name, rest = verb[0], list(words[count:])
            if name == "pybt" and any(word in CHILDREN for word in rest):  # of several processes, native frames too
                return "llm-stacks", ["-subprocesses", *(word for word in rest if word not in (*CHILDREN, *NATIVE))]
            if name == "pybt" and any(word in NATIVE for word in rest):
                name, rest = "llm-bt", [word for word in rest if word not in NATIVE]
            return name, [*verb[1], *(_of_core(rest) if words[0] == "core" else rest)]
    name, known = words[0], table.names()  # which are read from a file
    whole = [name, f"llm-{name}", f"py{name}"]
    return next((one for one in whole if one in known), name), list(words[1:])


def _of_core(words: Sequence[str]) -> list[str]:
    """The words behind `core`: the file's name with a slash, which makes it a file's here, and without the executable behind it,
    which is not needed."""
    files = [word for word in words if not word.startswith("-") and os.path.isfile(word)]
    rest = [word for word in words if word not in files[1:]]
    return [f"./{word}" if word in files and "/" not in word else word for word in rest]


def meant(name: str, others: Sequence[str] = ()) -> str:
    """` (llm-ranks?)`: what a word that is no command may have been meant for; "" where nothing is near."""
    import difflib

    if name.lstrip("-").isdecimal() or name in ("--pid", "-p"):
        return " (hang, dump, top, record, heap: a word before the process)"
    known = table.names()
    near = [HINTS[name]] if name in HINTS else difflib.get_close_matches(name, [*known, *VERBS, *others], 2, 0.8)
    if not near:
        short = [one[4:] for one in known if one.startswith("llm-")]
        near = [f"llm-{one}" for one in difflib.get_close_matches(name, short, 1, 0.75)]
    return f" ({' or '.join(near)}?)" if near else ""
