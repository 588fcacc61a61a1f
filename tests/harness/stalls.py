"""Stalls that subjects planted, recorded and compared with what they say of themselves."""

import collections
import contextlib
import json
import os
import signal
import threading
import time

from gdbext.access.proc import ProcTarget
from gdbext.timeline import sampler, stalls

from .subjects import SUBJECTS, spawned

FILE = os.path.join(SUBJECTS, "stalls.py")
KINDS = ("gc", "gil", "spin", "disk", "lock", "loop")


class Judged:
    """`table`: {kind: Counter of the causes shown for what was planted of it, "nothing" for none}; `planted`; `right`: of those,
    shown with the cause that was planted; `true`: with that, or with another that the subject says of itself: one that was kept
    waiting for a processor for half of the time waited for that, whatever it meant to do, and one that writes to a disk so fast
    that it runs for half of the time runs on; `kinds`: of what was shown truly; `seen`: planted where the recorder got to look at
    least every 50 ms, `seen_true` of them; `false`: stalls that were shown where nothing was planted; `recording`, `shown`."""

    def __init__(self, recording, shown, truth, offset):
        self.recording, self.shown, self.planted, self.right = recording, shown, len(truth), 0
        self.table, used = collections.defaultdict(collections.Counter), set()
        self.true = self.seen = self.seen_true = 0
        self.kinds = set()
        for one in truth:
            begin, end = one["begin"] - offset, one["end"] - offset
            near = [
                (min(s.end, end) - max(s.begin, begin), i)
                for i, s in enumerate(shown)
                if s.process.pid == one["pid"] and min(s.end, end) - max(s.begin, begin) > 0.5 * (end - begin)
            ]
            causes = {shown[i].cause for _, i in near}
            used |= {i for _, i in near}
            also = ["processor"] if one["queued"] >= 0.5 else []
            also += ["spin"] if one["kind"] == "disk" and one["ran"] >= 0.5 else []
            known = [cause for cause in (one["kind"], *also) if cause in causes]
            said = known[0] if known else shown[max(near)[1]].cause if near else "nothing"
            self.table[one["kind"]][said] += 1
            self.right += said == one["kind"]
            self.true += bool(known)
            self.kinds |= {one["kind"]} if known else set()
            seen = self._longest_gap(one["pid"], begin, end) <= 0.05
            self.seen, self.seen_true = self.seen + seen, self.seen_true + (seen and bool(known))
        self.false = [s for i, s in enumerate(shown) if i not in used]

    def _longest_gap(self, pid, begin, end):
        track = next(p for p in self.recording.processes if p.pid == pid)
        times = [begin, *(t for t in track.begins if begin < t < end), end]
        return max(b - a for a, b in zip(times, times[1:]))

    def __str__(self):
        lines = [f"{kind:10} {dict(row)}" for kind, row in sorted(self.table.items())]
        extra = [f"not planted: {s.cause} {s.begin:.2f}-{s.end:.2f} {s.process.label} {s.frame} {s.why}" for s in self.false]
        counted = (
            f"{self.right} of {self.planted}, {self.true} by what they say; {self.seen_true} of {self.seen} that were looked at"
        )
        return "\n".join([counted, *lines, *extra])


def _read(process, truth):
    """Takes in what a subject says until it is done."""
    for line in process.stdout:
        if line.startswith("{"):
            one = json.loads(line)
            if "done" in one:
                return
            truth.append(one)


def judge(python, folder, seed, each=4, size=3, kinds=KINDS, rate=100.0, realtime=False):
    """Plants `each` stalls of each of the `kinds` and as many late ranks, records them, finds them. -> `Judged`"""
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    half = len(kinds) // 2
    lines = [["one", seed, folder, each * len(part), *part] for part in (kinds[:half], kinds[half:]) if part]
    lines.append(["ranks", seed, each, size])
    with contextlib.ExitStack() as stack:
        subjects = [stack.enter_context(spawned([python, FILE, *map(str, line)], ready="{", env=env)) for line in lines]
        pids = [p for subject in subjects for p in json.loads(subject.said).get("pids") or [json.loads(subject.said)["pid"]]]
        stack.callback(_end, pids)
        truth, running = [], len(subjects) - 1 + size
        return _judged(subjects, pids, truth, running, rate, realtime)


def _end(pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _judged(subjects, pids, truth, running, rate, realtime):
    left = [running]
    over = threading.Event()

    def listen(process, count):
        for _ in range(count):
            _read(process, truth)
            left[0] -= 1
        if left[0] <= 0:
            over.set()

    counts = [1] * (len(subjects) - 1) + [running - len(subjects) + 1]
    listeners = [threading.Thread(target=listen, args=pair, daemon=True) for pair in zip(subjects, counts)]
    waiting = list(zip(subjects, listeners))

    def beside(rec, now):
        while waiting:  # the recording is under way: what is planted from now on lies in it
            subject, listener = waiting.pop()
            subject.stdin.write("go\n")
            subject.stdin.flush()
            listener.start()
        if over.is_set():
            raise KeyboardInterrupt

    before = time.monotonic()
    failed = []
    targets = [(ProcTarget(pid), f"P{i}") for i, pid in enumerate(pids)]
    recording = sampler.record(targets, rate, 120.0, failed, beside, realtime)
    assert not failed
    ended = time.monotonic()
    assert ended - before < 115
    return Judged(recording, stalls.find(recording), list(truth), ended - recording.seconds)
