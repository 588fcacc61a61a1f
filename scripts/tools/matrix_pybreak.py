"""scripts/matrix --pybreak: Python breakpoints on every interpreter here. A program runs lines, calls and closures and counts its
passes itself (tests/gdb/subjects/breakpoints.py); of those, how many pylog and pytrace print, each with the right values and in
order. And how many calls a second the program makes before a breakpoint is set, while it is armed and not reached, and when gdb
is gone."""

import json
import os
import re
import signal
import subprocess
import tempfile

from .say import say

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FILE = os.path.join(ROOT, "tests", "gdb", "subjects", "breakpoints.py")
BEGIN, END = "<!-- made by scripts/matrix --pybreak --write: begin -->", "<!-- end of pybreak -->"


def lines():
    """{name: number} of the subject's marked lines."""
    with open(FILE) as f:
        found = [(re.search(r"# LINE (\w+)$", line), i) for i, line in enumerate(f, 1)]
    return {m.group(1): i for m, i in found if m}


class Subject:
    def __init__(self, python, folder):
        self.go = os.path.join(folder, "go")
        env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        self.process = subprocess.Popen(
            [python, FILE, self.go], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=env, text=True
        )
        self.said = json.loads(self.process.stdout.readline())

    def command(self, word):
        return f"shell echo {word} > {self.go}.new && mv {self.go}.new {self.go}"

    def tell(self, word):
        with open(self.go + ".new", "w") as f:
            f.write(word)
        os.rename(self.go + ".new", self.go)

    def tally(self):
        return json.loads(self.process.stdout.readline())

    def end(self):
        try:
            os.kill(self.said["pid"], signal.SIGKILL)  # the interpreter, where a loader runs it
        except ProcessLookupError:
            pass
        self.process.kill()
        self.process.communicate()


CLOCK = r"(?:[\d:.]+ )?"  # of the line's time
LOGS = [("work", "{number} {step}"), ("loop", "{number} {each}"), ("closure", "{number} {add}")]


def passes_of(text, at, rounds):
    """(right, all) of the lines that `pylog` printed for each of `LOGS`."""
    wanted = {
        "work": [f"{n} {n + 1}" for n in range(rounds)],
        "loop": [f"{n} {each}" for n in range(rounds) for each in range(3)],
        "closure": [f"{n} {add}" for n in range(rounds) for add in (1, 10)],
    }
    seen = {name: re.findall(rf"^{CLOCK}\d+ breakpoints\.py:{at[name]}  (.*)$", text, re.M) for name, _ in LOGS}
    whole = all(len(seen[name]) <= len(wanted[name]) for name in seen)
    right = sum(a == b for name in wanted for a, b in zip(wanted[name], seen[name])) if whole else 0
    return right, sum(map(len, wanted.values()))


def calls_of(text):
    """How many calls and results that `pytrace` printed are what the subject did."""
    calls = re.findall(rf"^{CLOCK}\d+ breakpoints\.py:\d+  -> (?:Machine\.)?two\(.*number=(\d+)\)$", text, re.M)
    results = re.findall(rf"^{CLOCK}\d+ breakpoints\.py:\d+  <- (?:Machine\.)?two = (.*?)(?:  \([\d.]+ \w+\))?$", text, re.M)
    wanted = [repr(("a" if n % 3 else "b", n)) for n in range(len(results))]
    return sum(int(a) == n for n, a in enumerate(calls)) + sum(a == b for a, b in zip(results, wanted))


def speed_of(subject):
    """Calls a second without gdb: the best of three."""
    found = []
    for _ in range(3):
        subject.tell("speed")
        found.append(subject.tally()["speed"])
    return max(found)


def one(gdb, python):
    """-> (version, {"passes": (right, all), "calls": (right, all), "speed": [before, armed, after]})"""
    from harness.gdb_run import run_gdb

    at = lines()
    with tempfile.TemporaryDirectory(prefix="gdbext-matrix-") as folder:
        subject = Subject(python, folder)
        try:
            before = speed_of(subject)
            commands = [f'pylog breakpoints.py:{at[name]} "{text}"' for name, text in LOGS]
            commands += ["pybreak finished", subject.command("run"), "continue"]
            commands += ["delete 1 2 3", "pytrace Machine.two", subject.command("run"), "continue", "delete 5", "pybreak fails"]
            commands += [subject.command("speed"), "continue"] * 3 + ["delete", "detach"]
            attach = ["-p", str(subject.said["pid"])]
            said = run_gdb(gdb, commands, attach, timeout=120, before=["set auto-solib-add off"])
            first, second, third, *armed = [subject.tally() for _ in range(5)]
            held = max(t["speed"] for t in (third, *armed))
            version = ".".join(map(str, subject.said["version"]))
            return version, {
                "passes": passes_of(said.outputs[5], at, first["run"]),
                "calls": (calls_of(said.outputs[9]), 2 * (second["run"] - first["run"])),
                "speed": [before, held, speed_of(subject)],
            }
        finally:
            subject.end()


def table(rows):
    """-> (Markdown, whether all was right)"""
    text = [
        (
            "| CPython | passes printed / there were | calls and results printed / there were | "
            "calls/s before | armed, not reached | after |"
        ),
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for version, found in rows:
        speeds = " | ".join(f"{v / 1e6:.2f} M" for v in found["speed"])
        text.append(
            f"| {version} | {found['passes'][0]}/{found['passes'][1]} | {found['calls'][0]}/{found['calls'][1]} | {speeds} |"
        )
    return "\n".join(text), all(f[k][0] == f[k][1] for _, f in rows for k in ("passes", "calls"))


def main(gdb, pythons):
    rows = []
    for python in pythons:
        say(f"  {python}")
        rows.append(one(gdb, python))
    return table(rows)
