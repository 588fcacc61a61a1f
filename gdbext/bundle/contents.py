"""What goes into a bundle beside snapshots: which processes, how they were started, on which machine."""

from __future__ import annotations

import contextlib
import os
import re
from typing import Iterator, Sequence

from ..access import secrets
from ..access.cgroups import own_folders
from ..access.secret_text import as_variable, is_secret_name

HIDDEN = "***"
MAX_WORDS = 512
NVIDIA = "/proc/driver/nvidia"
_OPTION = re.compile(r"-[A-Za-z]{1,3}|--[A-Za-z][a-z0-9]*([_.-][a-z0-9]+)*", re.ASCII)  # names of options
_WORD = re.compile(r"[A-Za-z0-9_.:/@+=,~-]{1,200}", re.ASCII)  # of a command line, that a program means and no person wrote


def command_line(argv: Sequence[str]) -> str:
    """A command line with `***` for each value that a snapshot does not keep either: of an option that is not known, of a secret,
    of what people wrote. Of words that belong to no option paths and dotted names stay. A title that a program has set is one
    word, of which the program's name is kept."""
    shown: list[str] = []
    option = b""
    for number, word in enumerate(argv[:MAX_WORDS]):
        raw = os.fsencode(word)
        name, mark, _ = word.partition("=")
        owed, option = option, b""  # the option before, whose value this may be
        if not number:
            shown.append(word.split(" ")[0])
        elif word.startswith("-") and (is_secret_name(as_variable(os.fsdecode(owed))) or not _OPTION.fullmatch(name)):
            shown.append(HIDDEN)
        elif word.startswith("-") and mark:
            known = all(secrets.is_kept(one, value, variable=False) for one, value in secrets.pairs([raw], ()))
            shown.append(word if known and _WORD.fullmatch(word) else f"{name}={HIDDEN}")
        elif word.startswith("-"):
            option = raw
            shown.append(word)
        else:
            known = secrets.is_kept(*list(secrets.pairs([owed, raw] if owed else [raw], ()))[-1], variable=False)
            known = known and (bool(owed) or bool(mark) or "/" in word or "." in word)
            shown.append(word if known and _WORD.fullmatch(word) else HIDDEN)
    text = secrets.hidden(" ".join(one if _WORD.fullmatch(one) or one.endswith(HIDDEN) else HIDDEN for one in shown))
    return text if len(argv) <= MAX_WORDS else text + " ..."


def hardware(proc: str = "/proc") -> list[tuple[str, str]]:
    """[(what, how much)] of this machine, as far as files tell: processors, memory, control groups' limits, GPUs and driver."""
    found = [("machine", f"{os.uname().machine}, Linux {os.uname().release}"), ("processors", _processors(proc))]
    memory = _first(f"{proc}/meminfo", r"MemTotal:\s+(\d+) kB")
    if memory:
        found.append(("memory", f"{int(memory) >> 20} GiB"))
    for kind, name in (("cpu", "cpu.max"), ("memory", "memory.max")):
        for folder in own_folders(kind):
            limit = _first(f"{folder}/{name}", r"(\d+.*)")
            if limit:
                found.append((f"{name} of {folder}", limit))
    driver = _first(f"{NVIDIA}/version", r"Kernel Module\S*\s+(?:for \S+\s+)?(\S+)")
    return [*found, *([("driver", driver)] if driver else []), *_gpus()]


def _processors(proc: str) -> str:
    model = _first(f"{proc}/cpuinfo", r"model name\s*: (.+)")
    return f"{os.cpu_count()}" + (f" ({model})" if model else "")


def _gpus() -> Iterator[tuple[str, str]]:
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(f"{NVIDIA}/gpus"))[:64]:
            yield f"GPU {name}", _first(f"{NVIDIA}/gpus/{name}/information", r"Model:\s+(.+)")


def _first(path: str, pattern: str) -> str:
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as f:
        found = re.search(pattern, f.read(1 << 16))
        return found[1].strip() if found else ""
    return ""
