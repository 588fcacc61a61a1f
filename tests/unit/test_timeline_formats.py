"""Recordings in other tools' formats: as those read them, and harmless whatever functions are called."""

import base64
import hashlib
import html.parser
import json
import re

import pytest
from harness.recordings import HOSTILE, made

from gdbext import package
from gdbext.timeline import flame, formats, page, stalls


# ---- Chrome's trace ------------------------------------------------------------------------------------------------------
def slices_of(events):
    """{track: [(name, begin, duration, how many it lies in)]}, read as Perfetto reads them (its json_trace_tokenizer and
    slice_tracker): sorted by time, those of one time in the order of the file; a slice lies in all that are open; one that ends
    after what it lies in is refused, as Perfetto drops it."""
    found, opened = {}, {}
    for e in sorted((e for e in events if e["ph"] in "XBE"), key=lambda e: e["ts"]):
        track = e["pid"], e["tid"]
        own, done = opened.setdefault(track, []), found.setdefault(track, [])
        while own and own[-1][1] is not None and own[-1][1] <= e["ts"]:
            own.pop()
        if e["ph"] == "E":
            at = own.pop()[0]
            assert done[at][0] == e["name"], "an end that ends another"
            done[at][2] = e["ts"] - done[at][1]
            continue
        end = e["ts"] + e["dur"] if e["ph"] == "X" else None
        assert end is None or not own or own[-1][1] is None or end <= own[-1][1], "a slice that lies across another"
        own.append((len(done), end))
        done.append([e["name"], e["ts"], e.get("dur"), len(own) - 1])
    assert all(end is not None for own in opened.values() for _, end in own), "a slice without an end"
    return {track: [tuple(one) for one in done] for track, done in found.items()}


def test_the_chrome_trace_follows_its_format():
    """By "Trace Event Format": complete events have ts and dur, begins have ends, those of a track lie in each other or apart;
    metadata names tracks; counters have numbers."""
    rec = made()
    trace = json.loads("".join(formats.chrome_text(rec)))
    events, named = trace["traceEvents"], {}
    assert trace["displayTimeUnit"] == "ms" and {e["ph"] for e in events} == {"X", "B", "E", "M", "C"}
    for e in events:
        assert isinstance(e["pid"], int) and isinstance(e["name"], str)
        if e["ph"] in "XBE":
            assert isinstance(e["ts"], int) and e["ts"] >= 0 and (e["ph"] != "X" or e["dur"] >= 0) and isinstance(e["tid"], int)
        elif e["ph"] == "C":
            assert all(isinstance(v, (int, float)) for v in e["args"].values()) and e["ts"] >= 0
        elif e["name"] == "thread_name":
            named[e["tid"]] = e["args"]["name"]
    slices = slices_of(events)
    assert {tid for _, tid in slices} <= set(named)
    main = slices[100, 100]
    assert ("work", 200000.0, 300000.0, 1) in main, "looks at two lines of one function are one slice, in its caller's"
    assert ("work", 600000.0, 400000.0, 1) in main and ("step", 0.0, 500000.0, 0) in main, "the torn look is a gap"
    assert ("step", 600000.0, 400000.0, 0) in main, "of two that begin and end together the outer one is the outer one"
    own = {named[tid]: own for (_, tid), own in slices.items()}
    assert own["garbage collection"] == [("garbage collection", 300000.0, 100000.0, 0)]
    assert own["GIL"] == [("MainThread", 0.0, 600000.0, 0)]
    assert [name for name, *_ in own["work: state"]] == ["lock", "waits for the GIL"]


def test_stalls_that_lie_across_each_other_have_tracks_of_their_own():
    rec = made()
    process = rec.processes[0]
    spans = ((0.1, 0.4), (0.3, 0.6), (0.35, 0.38), (0.45, 0.5))
    found = [stalls.Stall("spin", begin, end, process, process.threads[0], None) for begin, end in spans]
    slices = slices_of(formats.chrome_events(rec, found))
    shown = sorted(
        (begin / 1e6, (begin + d) / 1e6) for own in slices.values() for name, begin, d, _ in own if name == "stall: spin"
    )
    assert shown == [pytest.approx(span) for span in sorted(spans)]


# ---- speedscope ----------------------------------------------------------------------------------------------------------
FILE = {  # src/lib/file-format-spec.ts, FileFormat: field -> (its type, whether it must be there)
    "File": {
        "$schema": ("https://www.speedscope.app/file-format-schema.json", True),
        "shared": ("Shared", True),
        "profiles": (["SampledProfile"], True),
        "name": (str, False),
        "activeProfileIndex": (int, False),
        "exporter": (str, False),
    },
    "Shared": {"frames": (["Frame"], True)},
    "Frame": {"name": (str, True), "file": (str, False), "line": (int, False), "col": (int, False)},
    "SampledProfile": {
        "type": ("sampled", True),
        "name": (str, True),
        "unit": (("none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes"), True),
        "startValue": ((int, float), True),
        "endValue": ((int, float), True),
        "samples": ([[int]], True),
        "weights": ([(int, float)], True),
    },
}


def fits(value, kind):
    if isinstance(kind, list):
        return isinstance(value, list) and all(fits(v, kind[0]) for v in value)
    if isinstance(kind, str) and kind in FILE:
        fields = FILE[kind]
        return (
            isinstance(value, dict)
            and set(value) <= set(fields)
            and all(name in value for name, (_, needed) in fields.items() if needed)
            and all(fits(v, fields[name][0]) for name, v in value.items())
        )
    if isinstance(kind, tuple) and isinstance(kind[0], str):
        return value in kind
    return value == kind if isinstance(kind, str) else isinstance(value, kind) and not isinstance(value, bool)


def test_the_speedscope_file_fits_its_published_format():
    found = formats.speedscope(made())
    assert fits(json.loads(json.dumps(found)), "File")
    assert not fits({**found, "shared": {"frames": [{"file": "no name"}]}}, "File"), "the check finds a wrong file"
    frames = found["shared"]["frames"]
    main = found["profiles"][0]
    assert all(0 <= i < len(frames) for p in found["profiles"] for stack in p["samples"] for i in stack)
    assert all(len(p["samples"]) == len(p["weights"]) for p in found["profiles"])
    assert round(sum(main["weights"]), 6) == main["endValue"] - main["startValue"] == 1.0
    assert [[frames[i]["name"] for i in stack] for stack in main["samples"]] == [
        ["step"],
        ["step", "work"],
        ["step", "work"],
        [],
        ["step", "work"],
    ]


# ---- pages ---------------------------------------------------------------------------------------------------------------
class Tags(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.scripts = set(), set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag == "meta":
            self.policy = dict(attrs).get("content", "")

    def handle_data(self, data):
        if self.lasttag == "script" and data.strip():
            self.scripts.append(data)


def test_the_page_needs_nothing_and_holds_nothing_hostile():
    rec = made(HOSTILE, HOSTILE)
    rec.processes[0].label = HOSTILE
    rec.notes = [HOSTILE]
    own, thread = flame.stacks(rec), rec.processes[0].threads[1]
    stall = stalls.Stall("late-rank", 0.1, 0.3, rec.processes[0], thread, rec.tree.frames[1], (HOSTILE,), HOSTILE)
    for text in (page.page(rec, [stall]), page.difference(own, flame.stacks(made()))):
        found = Tags(text)
        assert not found.tags & {"img", "link", "iframe", "object"} and {"svg", "script"} < found.tags
        (script,) = found.scripts  # the pack's own, and the policy lets no other run
        assert script == package.data("timeline/page.js").decode() and "</" not in script
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert found.policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
        assert not [a for a in found.attributes if a.startswith("on") or a in ("src", "href")]
        assert not re.search(r"https?://", text) and "\x1b" not in text and "\u202e" not in text
        text.encode("utf-8")
    for text in (
        flame.folded(own),
        "".join(formats.chrome_text(rec, [stall])),
        json.dumps(formats.speedscope(rec), ensure_ascii=False),
    ):
        assert "\x1b" not in text and "\u202e" not in text and "\ud800" not in text
    assert all(re.fullmatch(r"[^;]+(;[^;]+)+ \d+", line) for line in flame.folded(own).splitlines())


def test_the_difference_names_what_grew():
    before, after = {("p", "t", "a", "b"): 1.0, ("p", "t", "a", "c"): 1.0}, {("p", "t", "a", "b"): 3.0, ("p", "t", "a", "c"): 1.0}
    assert [(n, round(c, 4)) for n, _, _, c in page.changes(after, before)[:2]] == [("b", 0.25), ("c", -0.25)]
    assert flame.folded_difference(after, before) == "p;t;a;b 1000 3000\np;t;a;c 1000 1000\n"
    assert page.WORSE != page.BETTER and page.graph(flame.tree(after, before)).count("<rect") == 6
