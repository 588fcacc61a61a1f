"""`python -m gdbext COMMAND ...`: the pack's answers outside gdb, and its set-up. Exit status 0, 1 for an error, 3 for a partial
answer."""

from __future__ import annotations

import errno
import gc
import os
import resource
import signal
import sys
from typing import Any, Callable, Sequence

from . import log, package

if __name__ == "__main__" or os.path.basename(sys.argv[0]) == "gdbext":  # before what follows takes memory
    package.first_to_go()

from .commands import table, verbs
from .errors import GdbextError
from .render import jsonline, streams
from .render.columns import fitted, wrapped
from .render.text import Style, coloured, one_line

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # what a file that standard output goes to may meet
PATIENCE = 4.5  # seconds of a liveness probe
MOST_FILES = 1 << 16  # open at a time, where the user may have so many
SETUP = {
    "doctor": "what works on this machine, what does not, and the line that fixes it",
    "install": "load gdbext in gdb and cuda-gdb from now on, and get numpy and the rest for gdb's own Python",
    "uninstall": "remove that again",
    "gdb": "print the line that loads gdbext in gdb; gdbext.pyz unpacks itself first, into [DIR] or a private folder",
    "cache": "clear: remove what commands keep for later ones",
    "allow": "let every process of the user trace what this Python runs, where Yama forbids it: a line for an image",
    "completion": "print what completes commands and options in a shell: bash, zsh or fish",
    "mcp": "serve the answers to agents by the Model Context Protocol over stdio: needs pip install 'gdbext[mcp]'",
    "skill": "write a skill folder, the guide and the commands for an agent with a shell, into DIR",
    "vscode": (
        "print a launch.json for VS Code: attach to each rank, or start an engine, by gdb, its DAP, Nsight's cuda-gdb or debugpy"
    ),
}

PLAIN = {
    "hang PID": "why it hangs, or that it does not: which thread, lock, line",
    "dump PID": "the Python stacks of all threads; -native: both kinds; -locals: variables; -subprocesses: children too",
    "top [PID]": "live: what runs, who has the GIL, which functions take the time",
    "record PID": "a profile: -for 30 -o FILE.html, .speedscope.json, .collapsed, .pb.gz; -- COMMAND starts a program",
    "heap PID": "the objects of the Python heap, what grows, and who holds it",
    "diff A B": "two moments (snapshots, or a pid): what moved, what stands, what grew",
}
ARGUMENTS: dict[str, Sequence[tuple[Sequence[str], dict[str, Any]]]] = {
    "allow": (
        (("-print", "--print"), {"action": "store_true", "help": "print the two files, and write nothing"}),
        (("-remove", "--remove"), {"action": "store_true", "help": "remove them"}),
        (("-into", "--into"), {"default": "", "metavar": "DIR", "help": "another Python's folder of site-packages"}),
    ),
    "cache": ((("what",), {"choices": ("clear",), "help": "remove it all"}),),
    "completion": ((("shell",), {"choices": ("bash", "zsh", "fish", "processes"), "help": "the shell that reads it"}),),
    "gdb": ((("folder",), {"nargs": "?", "default": "", "metavar": "DIR", "help": "unpack into this folder (gdbext.pyz)"}),),
    "skill": ((("folder",), {"metavar": "DIR", "help": "the folder; made where it is not there"}),),
}


def _usage() -> str:
    lines = [f"Usage: {package.how()} COMMAND [ARGUMENT]...", "", "Any Python program, by its pid:"]
    lines += [f"  {name:<14}{text}" for name, text in PLAIN.items()]
    lines += ["", "Set-up:", *(f"  {name:<14}{text}" for name, text in SETUP.items())]
    lines += [
        "",
        "Commands that read, as in gdb (COMMAND --help; -on WHAT names the process, --json gives JSON), also without llm-",
    ]
    lines += ["or py. remote, core, ps, gcore mean what they mean in pystack and elsewhere:"]
    more = [(title, [e for e in entries if e.name not in table.FIRST]) for title, entries in table.grouped()]
    for title, entries in [(table.FIRST_TITLE, [table.entry("llm"), *table.first()]), *more]:
        shown = [f"    {e.name:<14}{e.summary}" for e in entries if not e.gdb_only]
        lines += [f"  {title}", *shown] if shown else []
    return "\n".join(lines)


def _parser(name: str) -> Any:
    import argparse

    parser = argparse.ArgumentParser(prog=f"{package.how()} {name}", description=SETUP[name])
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    if name in ("install", "uninstall"):
        parser.add_argument("--gdbinit", metavar="FILE", help="this init file alone, instead of gdb's and cuda-gdb's own")
        parser.add_argument("--no-wheels", action="store_true", help="leave the packages for gdb's Python alone")
    for flags, more in ARGUMENTS.get(name, ()):
        parser.add_argument(*flags, **more)
    if name == "mcp":
        from .session.command import finite

        parser.add_argument("--limit", type=finite, default=60, metavar="S", help="seconds that one answer may take (60)")
    if name == "vscode":
        parser.add_argument(
            "what", nargs="?", default="", metavar="WHAT", help="the ranks: a label, pid or index of llm-ranks (default: all)"
        )
        parser.add_argument(
            "-pick", "--pick", action="store_true", help="no pids: VS Code's process picker asks when it attaches"
        )
        parser.add_argument(
            "-launch",
            "--launch",
            nargs=argparse.REMAINDER,
            default=[],
            metavar="COMMAND",
            help="configurations that start this command line of an engine under each debugger (the last option)",
        )
    if name == "install":
        parser.add_argument("--wheels-only", action="store_true", help="no init file, only the packages for gdb's Python")
    if name not in ("uninstall", "gdb", "skill", "mcp", "cache", "completion", "allow"):
        parser.add_argument("--gdb", metavar="PATH", help="this gdb instead of those on the PATH")
    return parser


def _small(name: str, options: Any, say: Callable[[str], None]) -> dict[str, Any]:
    """-> the data of what has few arguments."""
    if name == "gdb":
        from .setup import unpack

        found = {"source": unpack.init_script(options.folder)}
        say(f"source {found['source']}")
        return found
    if name == "cache":
        from .setup import cache

        return cache.clear(say)
    if name == "allow":
        from .setup import allow

        if not options.print:
            return allow.change(options.into, options.remove, say)
        say(allow.text().rstrip())
        return {"text": allow.text()}
    if name == "completion":
        from .setup import completion

        script = completion.script(options.shell, SETUP)
        say(script)
        return {"script": script}
    from .agents import skill

    written = skill.write(options.folder)
    say("\n".join(written))
    return {"files": written}


def _setup(name: str, words: list[str]) -> int:
    options = _parser(name).parse_args(words)
    say = (lambda text: None) if options.json else print
    status = 0
    partial: list[str] = []
    if name == "doctor":
        from .setup import doctor

        checks = doctor.run(options.gdb)
        found = doctor.data(checks)
        status = 0 if found["ok"] else 1
        say(wrapped(doctor.text(checks, Style(coloured(sys.stdout.isatty()))), streams.columns(sys.stdout)))
    elif name == "install":
        from .setup import install

        found, partial = install.install(options.gdbinit, options.gdb, not options.no_wheels, not options.wheels_only, say)
        for reason in partial:
            say(f"not done: {reason}")
        status = 3 if partial else 0
    elif name == "uninstall":
        from .setup import install

        found = install.uninstall(options.gdbinit, not options.no_wheels, say)
    elif name in ARGUMENTS:
        found = _small(name, options, say)
    elif name == "mcp":
        from .agents import server

        server.serve(options.limit)
        return 0
    else:
        from .setup import gdbs, vscode

        paths = gdbs.find(options.gdb)
        own = next((p for p in paths if "cuda" not in os.path.basename(p)), None)
        cuda = next((p for p in paths if p != own and "cuda" in os.path.basename(p)), "" if own else "cuda-gdb")
        # none here: the editor's machine may have another, of which nothing is known
        gdb = gdbs.ask(own) if own else gdbs.Gdb("gdb", "", (14, 0), (3, 8), "")
        found = {"launch": vscode.configurations(gdb, cuda, options.what, options.launch, options.pick)}
        say(found["launch"])
    if options.json:
        print(jsonline.dumps({"schema": name + "/1", "partial": partial, **found}))
    return status


def main(words: list[str]) -> int:
    """The exit status. Of a probe with `-liveness` it is 0 for all but a hang: Kubernetes ends the container for any other."""
    probes = words[:1] in (["probe"], ["llm-probe"])
    if not probes or not any(word in ("-liveness", "--liveness") for word in words[1:]):
        return _main(words)

    def late(*_: Any) -> None:
        os.write(1, b"not known: no answer in time\n")
        os._exit(0)

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        status = _main(words)
    except Exception as e:
        print(f"gdbext: not known: {type(e).__name__}: {one_line(str(e))}", file=sys.stderr)
        return 0
    return 2 if status == 2 else 0


def _main(words: list[str]) -> int:
    name, rest = (words[0], words[1:]) if words else ("--help", [])
    width = streams.columns(sys.stdout)
    if name == "help" and rest:
        name, rest = rest[0], ["--help"]
    if name in ("-h", "--help", "help"):
        print(fitted(_usage(), width or 130))
        return 0
    if name in ("--version", "-V", "version"):
        from . import __version__

        print(f"gdbext {__version__}")
        return 0
    if name not in SETUP:
        name, rest = verbs.command_of([name, *rest])
    as_json = any(w in ("-json", "--json") for w in rest)
    try:
        if name in SETUP:
            return _setup(name, rest)
        if name not in table.names():
            meant = verbs.meant(name, list(SETUP))
            raise GdbextError(f"there is no command {name!r}{meant}; {package.how()} --help lists them")
        entry = table.entry(name)
        if rest and rest[0] in ("-h", "--help"):
            print(table.load(name).help(width))
            return 0
        if entry.gdb_only:
            raise GdbextError(f"{name} is typed in gdb; `{package.how()} gdb` prints the line that loads it there")
        from .setup import outside

        return outside.run(name, rest, f"{package.how()} ")
    except GdbextError as e:
        text = one_line(str(e))
    except (OSError, RuntimeError) as e:
        from .session.system_errors import meaning

        why = meaning(e)
        if why is None:
            raise
        text = one_line(str(why))
    if as_json:
        print(jsonline.dumps({"schema": name + "/1", "partial": [], "error": text}))
    else:
        print(f"gdbext: {text}", file=sys.stderr)
    return 1


def _allow_files() -> None:
    """Raises the limit of open files: shells allow too few at first for an answer about hundreds of processes."""
    with log.passing_over(OSError):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
        if 0 <= soft < most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def entry() -> None:
    """The program `gdbext` that pip installs."""
    streams.make_whole()
    _allow_files()
    try:
        status = main(sys.argv[1:])
        sys.stdout.flush()  # here, where it is known what to do without a reader
        gc.freeze()  # an interpreter that ends walks all objects: after an answer about many threads half a second
        sys.exit(status)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # `| head` has gone; nothing is left to say
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(141)
    except OSError as e:
        if e.filename is not None or e.errno not in FULL:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        print(f"gdbext: standard output cannot be written: {e.strerror}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    entry()
