"""scripts/matrix: how many Python frames gdbext gets right, of all there are, on every interpreter here.

A frame is right when function, file and line are what the process says of itself (`sys._current_frames()`,
tests/gdb/subjects/py_stacks.py) and it stands in its place in the stack. Each interpreter runs as it is and with the file that
holds it stripped of all symbols; one thread with every kind of frame in one stack, and 25 threads with one kind each. Each is
read four ways: through /proc while it runs (pybt), stopped in gdb (llm-bt, with native frames), from a core in gdb (llm-bt), and
from that core without gdb (pybt). The core is the kernel's where it writes one into the folder, else gcore's."""

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

from . import matrix_pybreak
from .prepare_tests import fetched_pythons
from .say import Failed, say
from .system import find_pythons, need_gdb

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [ROOT, os.path.join(ROOT, "tests")]
WAYS = ["/proc", "gdb, live", "gdb, core", "core alone"]
BEGIN, END = "<!-- made by scripts/matrix --write: begin -->", "<!-- end -->"


def right(answer, truth, pid):
    """-> (frames right, frames there are). `answer`: JSON of pybt or llm-bt -all."""
    told = {int(tid): [f[:3] for f in frames] for tid, frames in truth["threads"].items()}
    told[pid] = [None] + [f[:3] for f in truth["main"]]  # the frame that did the telling does not know its own line
    found = {
        thread["tid"]: [
            [f["function"], f["file"], f["line"]] for f in thread["frames"] if f["kind"] == "python" and f["reliable"]
        ]
        for thread in answer["threads"]
    }
    good = 0
    for tid, frames in told.items():
        own = found.get(tid, [])
        good += sum(a == b or b is None and a[0] == "tell" for a, b in zip(own, frames)) if len(own) == len(frames) else 0
    return good, sum(map(len, told.values()))


def outside(*words):
    """The JSON of a command outside gdb."""
    done = subprocess.run(
        [sys.executable, "-m", "gdbext", *words, "--json"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines or "threads" not in json.loads(lines[-1]):
        raise Failed(done.stdout.strip()[-300:])
    return json.loads(lines[-1])


def one(gdb, argv, env, arguments):
    """-> {way: (right, all) or the error} of one subject."""
    from harness.gdb_run import run_gdb
    from harness.subjects import kernel_core, running, unlimited_core

    cells, off = {}, ["set auto-solib-add off"]
    with tempfile.TemporaryDirectory(prefix="gdbext-matrix-") as folder:
        core = os.path.join(folder, "core")
        with running(argv, "py_stacks.py", *arguments, env=env, cwd=folder, preexec_fn=unlimited_core) as (target, truth):
            pid = target.pid

            def cell(way, read):
                try:
                    cells[way] = right(read(), truth, pid)
                except (Failed, AssertionError, KeyError) as e:
                    cells[way] = f"{type(e).__name__}: {e}"

            cell("/proc", lambda: outside("pybt", "-all", "-on", str(pid)))
            live = run_gdb(gdb, ["llm-bt -all -json"], ["-p", str(pid)], before=off)
            cell("gdb, live", lambda: live.json(0))
            written = kernel_core(target.process, folder)
            if written:
                os.rename(written, core)
            else:
                run_gdb(gdb, [f"gcore {core}"], ["-p", str(pid)], before=off, load=False)
        dead = run_gdb(gdb, ["llm-bt -all -json"], ["-c", core], before=off)
        cell("gdb, core", lambda: dead.json(0))
        cell("core alone", lambda: outside("pybt", "-all", "-on", core))
    return cells


def interpreters(pythons):
    """[(version, build, argv, environment)] of each, as it is and stripped."""
    from harness.subjects import copy, running

    from gdbext.cpython.runtime import open_runtime

    for python in pythons:
        with running(python, "parked.py") as (target, _):
            rt = open_runtime(target)
            build = "shared" if ".so" in rt.library.name else "static"
            build += ", symbols" if rt.library.elf.has_static_symbols else ", no symbols"
            build += ", DWARF" if ".debug_info" in rt.library.elf.sections else ""
        version = subprocess.run(
            [python, "-c", "import platform as p; print(p.python_version())"], stdout=subprocess.PIPE, text=True
        ).stdout.strip()
        yield version + ("t" if rt.layout.name.endswith("t") else ""), build, [python], {}
        if shutil.which("strip"):
            with tempfile.TemporaryDirectory(prefix="gdbext-matrix-") as folder, contextlib.suppress(
                subprocess.CalledProcessError
            ):
                argv, env, _ = copy(python, folder, strip=True)
                yield version, build.split(",")[0] + ", stripped", argv, env


def table(rows):
    """Markdown."""
    subjects = ["1 thread", "25 threads"]
    lines = [
        "| CPython | build | " + " | ".join(f"{way}: {s}" for way in WAYS for s in subjects) + " |",
        "| --- | --- |" + " ---: |" * (len(WAYS) * 2),
    ]
    for version, build, cells in rows:
        shown = [cells[s].get(way) for way in WAYS for s in subjects]
        lines.append(
            f"| {version} | {build} | " + " | ".join(f"{c[0]}/{c[1]}" if isinstance(c, tuple) else "failed" for c in shown) + " |"
        )
    counted = [c for _, _, cells in rows for ways in cells.values() for c in ways.values() if isinstance(c, tuple)]
    failed = sum(len(ways) for _, _, cells in rows for ways in cells.values()) - len(counted)
    good, total = sum(c[0] for c in counted), sum(c[1] for c in counted)
    lines += [
        "",
        f"Python frames right / all there are: {good} of {total} in {len(counted)} readings"
        + (f", {failed} readings failed." if failed else "."),
    ]
    return "\n".join(lines), good == total and not failed


def put(text, begin, end):
    """Between its marks in docs/measurements.md."""
    path = os.path.join(ROOT, "docs", "measurements.md")
    with open(path, encoding="utf-8") as f:
        readme = f.read()
    if begin not in readme:
        raise Failed(f"{path} has no line {begin}")
    with open(path, "w", encoding="utf-8") as f:
        f.write(re.sub(re.escape(begin) + ".*?" + re.escape(end), lambda _: f"{begin}\n\n{text}\n\n{end}", readme, flags=re.S))


def main(words):
    parser = argparse.ArgumentParser(
        prog="scripts/matrix", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", action="append", help="measure this interpreter instead of those found here; may be repeated")
    parser.add_argument("--write", action="store_true", help="put the table into docs/measurements.md, between its marks")
    parser.add_argument(
        "--pybreak", action="store_true", help="Python breakpoints instead of stacks: passes seen, and the program's speed"
    )
    args = parser.parse_args(words)
    gdb = need_gdb()[0]
    pythons = args.python or list(find_pythons((3, 9), more=fetched_pythons()).values())
    if args.pybreak:
        text, whole = matrix_pybreak.main(gdb, pythons)
        say("\n" + text)
        if args.write:
            put(text, matrix_pybreak.BEGIN, matrix_pybreak.END)
        return 0 if whole else 1
    rows = []
    for version, build, argv, env in interpreters(pythons):
        say(f"  {version}, {build}")
        cells = {"1 thread": one(gdb, argv, env, ["alone"]), "25 threads": one(gdb, argv, env, [])}
        for subject, ways in cells.items():
            for way, cell in ways.items():
                if not isinstance(cell, tuple) or cell[0] < cell[1]:
                    say(f"    {subject}, {way}: {cell}")
        rows.append((version, build, cells))
    text, whole = table(rows)
    say("\n" + text)
    if args.write:
        put(text, BEGIN, END)
    return 0 if whole else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Failed as e:
        say(str(e))
        sys.exit(1)
