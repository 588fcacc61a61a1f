"""Bundles and boxes: what is written is read; a file that somebody has built to harm is one line, at every door."""

import contextlib
import gc
import json
import os
import random
import string
import struct
import tracemalloc
import weakref
import zipfile
from types import SimpleNamespace

import pytest
from harness import work

import gdbext
from gdbext.answers import hang
from gdbext.answers.rank_memory import RANK
from gdbext.api import bundled_memory, verdicts
from gdbext.bundle import contents, format, page, paths
from gdbext.commands import llm_bundle, llm_memory, table
from gdbext.engines import targets, what
from gdbext.engines.processes import ProcessRef
from gdbext.errors import GdbextError
from gdbext.render.fields import Fields
from gdbext.render.text import PLAIN
from gdbext.session.session import Session
from gdbext.setup import outside

MANIFEST = {"schema": format.BUNDLE, "processes": [{"label": "TP0", "pid": 7, "file": "memory/TP0.core"}]}


def made(path, members, method=zipfile.ZIP_DEFLATED):
    """A zip archive of any members, in order."""
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return str(path)


def good(path, **more):
    format.write(str(path), {**MANIFEST, **more}, {"memory/TP0.core": b"\x7fELF" + bytes(1 << 16), "page.md": b"#"})
    return str(path)


def refused(path):
    """The one line of each door for a file that is no bundle."""
    said = []
    for door in (lambda: gdbext.open(path), lambda: Session().target(path)):
        with pytest.raises(GdbextError) as e:
            door()
        said.append(str(e.value))
    for line in ("llm-hang", "llm-stacks", "llm-requests"):
        status, _, err = outside.perform(table.load(line), path, Session())
        assert status == 1, (line, err)
        said.append(err)
    for one in said:
        assert one.strip() and "\n" not in one.strip() and "Traceback" not in one and len(one) < 400, one
    return said[0]


def test_what_is_written_is_read_and_zeros_take_no_memory(tmp_path):
    path = good(tmp_path / "x.gdbext")
    assert os.stat(path).st_mode & 0o777 == 0o600
    bundle = format.open_bundle(path)
    assert bundle.kind == "bundle" and [one.label for one in bundle.processes] == ["TP0"]
    file = bundle.unpacked("memory/TP0.core")
    assert os.pread(file.fileno(), 4, 0) == b"\x7fELF" and os.fstat(file.fileno()).st_size == 4 + (1 << 16)
    assert os.fstat(file.fileno()).st_blocks * 512 <= 8192
    assert paths.split(f"{path}/TP0") == (path, "TP0") and format.open_bundle(path) is bundle
    bundle.close()


@pytest.mark.parametrize("seed", range(4))
def test_a_file_that_would_be_too_big_names_what_to_leave_out(tmp_path, seed):
    """The biggest first, no more than must be, and all at once: each try packs everything anew."""
    noise = random.Random(seed)
    sizes = {name: noise.randrange(1, 60_000) for name in "abcdef"}
    for name, length in sizes.items():
        (tmp_path / name).write_bytes(bytes(noise.getrandbits(8) for _ in range(length)))
    most = noise.randrange(10_000, sum(sizes.values()))
    with contextlib.ExitStack() as stack:
        files = {name: stack.enter_context(open(tmp_path / name, "rb")) for name in sizes}
        with pytest.raises(format.TooBig) as e:
            format.write(str(tmp_path / "x"), MANIFEST, files, most=most)
        gone = list(e.value.without)
        assert gone == sorted(sizes, key=lambda name: -sizes[name])[: len(gone)] and sorted(os.listdir(tmp_path)) == [*sizes]
        assert format.write(str(tmp_path / "x"), MANIFEST, {n: f for n, f in files.items() if n not in gone}, most=most) <= most
        one_more = {n: f for n, f in files.items() if n not in gone[:-1]}
        with pytest.raises(format.TooBig):
            format.write(str(tmp_path / "y"), MANIFEST, one_more, most=most)


WRONG = {
    "name with ..": [("manifest.json", json.dumps(MANIFEST)), ("../x", "1")],
    "absolute name": [("manifest.json", json.dumps(MANIFEST)), ("/etc/x", "1")],
    "no manifest": [("a.txt", "1")],
    "no JSON": [("manifest.json", "{")],
    "no object": [("manifest.json", "[1]")],
    "deep": [("manifest.json", "[" * 5000 + "]" * 5000)],
    "another schema": [("manifest.json", json.dumps({"schema": "gdbext-bundle/9", "processes": []}))],
    "processes is text": [("manifest.json", json.dumps({"schema": format.BOX, "processes": "TP0"}))],
    "a process is a number": [("manifest.json", json.dumps({"schema": format.BOX, "processes": [1]}))],
    "pid is text": [("manifest.json", json.dumps({"schema": format.BOX, "processes": [{"pid": "7"}]}))],
    "label is a list": [("manifest.json", json.dumps({"schema": format.BOX, "processes": [{"label": [1]}]}))],
    "a file that is not there": [("manifest.json", json.dumps(MANIFEST))],
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_hostile_archive_is_one_line(kind, tmp_path):
    refused(made(tmp_path / "x.gdbext", WRONG[kind]))


def many(path, n, label):
    """A box of `n` processes that share a member."""
    processes = [{"label": label(i), "pid": i, "file": "m/a"} for i in range(n)]
    manifest = {"schema": format.BOX, "node": "a", "processes": processes}
    rest = {"parts": [], "gpu_tensor_bytes": 0, "cuda_allocator": [], "gpu_blocks": []}
    ranks = [{"label": "x", "pid": i, "rss": i, **rest} for i in range(n)]
    members = {"manifest.json": json.dumps(manifest), "memory.json": json.dumps({"ranks": ranks}), "m/a": "x"}
    return made(path, members.items())


@pytest.mark.parametrize("label", ["TP", "TP{}"])
def test_twice_as_many_processes_take_twice_as_long(label, tmp_path):
    """Before anything is said: where the file claims many processes, all of them of one label or each of its own."""

    def steps(n):
        path = many(tmp_path / f"{n}", n, label.format)
        bundle = format.open_bundle(path)
        refs = [ProcessRef(core=bundle.path_of(one)) for one in bundle.processes]

        def asked():
            with pytest.raises(GdbextError):
                verdicts.of_bundles(refs)
            for one in bundle.processes:
                assert one in bundle.named(bundle.path_of(one)[len(path) + 1 :])
                row, _, _ = bundled_memory.read(bundle.path_of(one), "x")
                assert row["rss"] in (0, one.pid)

        return work.lines_of(asked)

    assert steps(600) < 2.5 * steps(300)


def test_more_processes_than_members_are_refused(tmp_path):
    assert "more than 4096 processes" in refused(many(tmp_path / "x", 4097, "TP{}".format))


def example(kind, depth=4):
    """JSON of a kind of field, with everything that it may have."""
    if isinstance(kind, Fields):
        return {f.name: {"owner": "tensor"}.get(f.name) or example(f.kind, depth - 1) for f in kind}
    if isinstance(kind, list):
        return [example(kind[0], depth - 1)] if depth > 0 else []
    if isinstance(kind, tuple):
        return example(kind[0], depth)
    return {str: "x", int: 7, float: 1.5, bool: True, dict: {}, list: [1, 2], None: None}[kind]


def damaged(value, draw):
    """The same with one place drawn that lacks a member or has another value."""
    odd = [None, 5, 0, -1e308, 10**299, "\x1b[2J", [], {}, [None], [5], {"a": 1}, [[1]], [{}], True]
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    if not keys or draw.random() < 0.2:
        return draw.choice(odd)
    key = draw.choice(keys)
    changed = value.copy()
    if isinstance(value, dict) and draw.random() < 0.15:
        del changed[key]
    else:
        changed[key] = damaged(value[key], draw)
    return changed


@pytest.mark.parametrize("seed", range(100))
def test_what_a_box_says_is_shown_or_is_damage_in_one_line(seed, tmp_path):
    draw = random.Random(seed)
    said, memory = example(hang.ANSWER), {"ranks": [{**example(RANK), "partial": ["x"]}]}
    manifest = {"schema": format.BOX, "node": "a", "time": 1e9, "processes": [{"label": "TP0", "pid": 7, "file": "m/a"}]}
    for n in range(8):
        path = str(tmp_path / f"{n}.gdbext")
        parts = [manifest, said, memory]
        which = draw.randrange(3) if n else 3  # the first is whole
        members = [damaged(one, draw) if number == which else one for number, one in enumerate(parts)]
        names = ("manifest.json", "verdict.json", "memory.json")
        made(path, [*((name, json.dumps(one)) for name, one in zip(names, members)), ("m/a", "x")], zipfile.ZIP_STORED)
        shown = ""
        with contextlib.ExitStack() as stack:
            if n:
                stack.enter_context(contextlib.suppress(GdbextError))
            found = verdicts.of_bundles([ProcessRef(core=path)])
            shown = found.text() + found.text(verbose=True) + found._repr_html_()
            told = llm_memory._bundled(f"{path}/TP0", "TP0")
            shown += llm_memory._text(told[0], PLAIN) if told else ""
        assert "\x1b" not in shown and (n or "resident" in shown)


@pytest.mark.parametrize("at", [None, "x", -1e300, 1e300, True, 0, [1]])
def test_a_box_without_a_time_is_of_no_date(at, tmp_path):
    manifest = {"schema": format.BOX, "time": at, "processes": [{"label": "TP0", "pid": 7, "file": "m/a"}]}
    members = {"manifest.json": manifest, "verdict.json": example(hang.ANSWER), "m/a": {}}
    path = made(tmp_path / "x", [(name, json.dumps(one)) for name, one in members.items()])
    said = verdicts.of_bundles([ProcessRef(core=path)]).text()
    assert "not known, when the box was made" in said and "1970" not in said


def test_two_members_of_one_name_are_refused(tmp_path):
    with pytest.warns(UserWarning):
        path = made(tmp_path / "x", [("manifest.json", json.dumps(MANIFEST)), ("page.md", "1"), ("page.md", "2")])
    assert "one name" in refused(path)


def test_what_would_unpack_to_gigabytes_is_refused_unread(tmp_path):
    path = good(tmp_path / "x.gdbext")
    data = bytearray(open(path, "rb").read())
    entry = data.index(b"PK\x01\x02", data.index(b"memory/TP0.core", data.index(b"PK\x01\x02")) - 46)
    struct.pack_into("<I", data, entry + 24, 0xFFFFFFF0)  # the size that the directory claims
    open(path, "wb").write(data)
    assert "MiB" in refused(path)


def test_a_member_that_is_longer_than_it_says_is_refused(tmp_path):
    path = good(tmp_path / "x.gdbext")
    data = bytearray(open(path, "rb").read())
    entry = data.index(b"PK\x01\x02", data.index(b"memory/TP0.core", data.index(b"PK\x01\x02")) - 46)
    struct.pack_into("<I", data, entry + 24, 100)
    open(path, "wb").write(data)
    with pytest.raises(GdbextError):
        Session().target(path)


def test_a_bomb_under_a_forged_size_takes_no_memory(tmp_path):
    text = json.dumps(MANIFEST)
    path = made(tmp_path / "x", [("manifest.json", text), ("memory/TP0.core", "1"), ("page.md", bytes(64 << 20))])
    data = bytearray(open(path, "rb").read())
    struct.pack_into("<I", data, data.rindex(b"PK\x01\x02") + 24, 100)
    open(path, "wb").write(data)
    bundle = format.open_bundle(path)
    tracemalloc.start()
    with pytest.raises(GdbextError):
        bundle.read("page.md")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


def test_few_archives_stay_open(tmp_path):
    opened = (format.open_bundle(good(tmp_path / f"{number}.gdbext")) for number in range(3 * format.MOST_OPEN))
    held = next(opened).unpacked("memory/TP0.core")
    for one in opened:
        one.unpacked("memory/TP0.core")
    del one, opened
    gc.collect()
    files = [os.path.realpath(f"/proc/self/fd/{one}") for one in os.listdir("/proc/self/fd")]
    assert sum(one.startswith(f"{tmp_path}/") for one in files) == format.MOST_OPEN
    assert os.pread(held.fileno(), 4, 0) == b"\x7fELF"  # what somebody reads stays


def test_targets_in_archives_are_let_go_but_cores_stay(tmp_path, monkeypatch):
    archives = []

    def opened(key):
        archive = type("Archive", (), {})() if "box" in key else None
        archives.append(weakref.ref(archive or opened))
        return SimpleNamespace(archive=archive, label="", is_stopped=True)

    monkeypatch.setattr(targets.Targets, "_open", staticmethod(opened))
    kept = targets.Targets()
    for name in ("core", *(f"box{i}" for i in range(20))):
        (tmp_path / name).write_text(name)
        kept.of(ProcessRef(core=str(tmp_path / name)))
    gc.collect()
    assert sum(one() is not None for one in archives[1:]) == targets.MOST_ARCHIVES and len(archives) == 21
    kept.of(ProcessRef(core=str(tmp_path / "core")))
    kept.of(ProcessRef(core=str(tmp_path / "box19")))
    assert len(archives) == 21


@pytest.mark.parametrize("most, told", [(99, True), (100, False)])
def test_a_bundle_above_its_bytes_says_so(most, told, tmp_path, monkeypatch):
    class Told:
        verdict = SimpleNamespace(kind="busy", sentence="", pauses=[], partial=["x"])
        processes, left_out, shots, spread, page = [], [], [], 0.0, "#"

        def __init__(self, *words):
            self.write = lambda *words: 100

    monkeypatch.setattr(llm_bundle, "_Told", Told)
    monkeypatch.setattr(llm_bundle.choosing, "resolve_processes", lambda *words, **more: [])
    monkeypatch.setattr(llm_bundle.examining, "examine", lambda *words, **more: None)
    args = SimpleNamespace(o=str(tmp_path / "x"), wait=1.0, max_bytes=most, force=False, operand_text="all")
    answer = llm_bundle.LlmBundle().run(SimpleNamespace(targets=None), args)
    assert any("more than -max-bytes" in one for one in answer.partial) is told and "x" in answer.partial


def test_too_many_members_other_methods_and_comments_are_refused(tmp_path):
    many = [("manifest.json", json.dumps(MANIFEST)), *((f"m{i}", "") for i in range(format.MAX_MEMBERS))]
    assert "too many" in refused(made(tmp_path / "many", many))
    path = made(tmp_path / "method", [("manifest.json", json.dumps(MANIFEST)), ("memory/TP0.core", "1")], zipfile.ZIP_BZIP2)
    assert "packed in a way" in refused(path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = b"PK\x05\x06" + bytes(18)
    refused(path)


def test_what_is_no_regular_file_or_another_archive_is_refused(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path, tmp_path / "gone"):
        refused(str(path))
    torch_file = made(tmp_path / "x.pt", [("archive/data.pkl", "1")])
    assert "no bundle" in refused(torch_file)


@pytest.mark.parametrize("seed", range(3))
def test_damage_at_drawn_places_is_one_line(seed, tmp_path):
    drawn, path = random.Random(seed), good(tmp_path / "x.gdbext")
    whole, refusals = open(path, "rb").read(), 0
    for number in range(60):
        data = bytearray(whole)
        for _ in range(drawn.randint(1, 4)):
            data[drawn.randrange(len(data))] = drawn.randrange(256)
        data = data[: drawn.randrange(len(data))] if drawn.random() < 0.3 else data
        name = tmp_path / f"{number}.gdbext"
        name.write_bytes(data)
        try:
            bundle = format.Bundle(str(name))
            for one in bundle.names:
                bundle.read(one)
            bundle.close()
        except GdbextError as e:
            refusals += 1
            assert "\n" not in str(e)
    assert refusals > 10
    assert not [one for one in os.listdir(tmp_path) if not one.endswith(".gdbext")]


SAID = {
    "verdict": "lock-held",
    "sentence": "TP0 holds the Lock l",
    "culprits": [],
    "evidence": ["e"],
    "victims": [],
    "not_asked": [],
    "not_asked_at": [],
    "if_it_lasts": None,
}
HANG = {
    **SAID,
    "meaning": "m",
    "verdicts": [{"engine": "", "group": ["TP0"], **SAID}],
    "next": [],
    "tree": [],
    "chains": [],
    "progress": [],
    "requests_open": None,
    "requests_stuck": None,
    "requests": [],
    "requests_kept": [],
    "in_step": [],
    "untraced": [],
    "ends": [],
    "ranks_read": 1,
    "ranks_total": 1,
    "pauses": [],
    "failed": [],
}


def boxed(path, verdict):
    """A box of processes that have all died."""
    manifest = {"schema": format.BOX, "processes": [{"label": "TP0", "pid": 7, "file": None}]}
    format.write(str(path), manifest, {"verdict.json": json.dumps(verdict).encode(), "page.md": b"#"})
    return str(path)


def test_a_box_sends_nobody_to_a_process_that_has_that_number_by_now(tmp_path):
    path = boxed(tmp_path / "x.gdbext", {**HANG, "verdict": "stopped", "next": ["kill -CONT 23986"]})
    status, out, err = outside.perform(table.load("llm-hang"), path, Session())
    assert (status, err) == (0, "") and "lock-held" in out and "kill" not in out
    assert verdicts.of_bundles(what.resolve(path, ())).data["next"] == []


def test_a_box_without_memory_tells_its_verdict_and_says_what_it_lacks(tmp_path):
    path = boxed(tmp_path / "x.gdbext", HANG)
    status, out, err = outside.perform(table.load("llm-hang"), path, Session())
    assert (status, err) == (0, "") and "lock-held: TP0 holds the Lock l" in out
    assert verdicts.of_bundles(what.resolve(path, ())).data["verdict"] == "lock-held"
    status, _, err = outside.perform(table.load("llm-stacks"), path, Session())
    assert status == 1 and "no memory" in err
    two = boxed(tmp_path / "y.gdbext", {**HANG, "verdict": "idle"})
    status, out, _ = outside.perform(table.load("llm-hang"), f"{two} {path}", Session())
    assert status == 3 and "lock-held" in out and "each judged by itself" in out


@pytest.mark.parametrize("bad", [{"verdict": 1}, {**HANG, "tree": [1]}, {**HANG, "failed": [{}]}, {**HANG, "culprits": "x"}])
def test_a_verdict_of_another_shape_is_one_line(bad, tmp_path):
    path = boxed(tmp_path / "x.gdbext", bad)
    status, _, err = outside.perform(table.load("llm-hang"), path, Session())
    assert status == 1 and "damaged" in err and "\n" not in err.strip()


def test_a_command_line_keeps_names_and_hides_values_that_are_not_known():
    words = "python -m vllm.entrypoints.api_server --model /m/x --api-key sk-abcdefgh12345678 --port 8000 --foo=bar".split()
    line = contents.command_line([*words, "--system-prompt", "You are a cat", "tell me a story"])
    assert line == (
        "python -m vllm.entrypoints.api_server --model /m/x --api-key *** --port 8000 --foo=*** --system-prompt *** ***"
    )
    assert contents.command_line(["VLLM::Worker_TP0 with a secret"]) == "VLLM::Worker_TP0"


SHAPES = (
    *("vllm serve org/m --api-key {}", "vllm serve org/m --api-key -{}", "x.py --hf-token --{}", "x.py --token={} -tp 2"),
    *("python serve.py {}", "curl -H Bearer {}", "x.py --port 80 {}", "x.py --system-prompt -{}", "x.py -{} --port 80"),
    *("x.py --trust-remote-code {}", "x.py --foo={}", "env PASSWORD={} x.py", "env FOO={} x.py", "x.py --api-key -v {}"),
)


@pytest.mark.parametrize("seed", range(200))
def test_no_drawn_canary_is_in_a_command_line(seed):
    draw = random.Random(seed)
    letters = string.ascii_lowercase + (string.ascii_uppercase + string.digits) * (seed % 2)
    canary = draw.choice(string.ascii_lowercase) + "".join(draw.choice(letters) for _ in range(draw.randrange(5, 24)))
    shape = SHAPES[seed % len(SHAPES)]
    line = contents.command_line(shape.format(canary).split(" "))
    assert canary not in line and contents.HIDDEN in line
    assert all(word in line.split() for word in ("org/m", "-tp", "--port") if f" {word} " in shape)


def test_a_page_is_short_and_nothing_in_it_is_markup():
    told = {"title": "a `b` <script> | c", "verdict": "```\nevil\n```", "requests": [{"request": "|x|\n# y"}] * 500}
    text = page.page({**told, "left_out": ["[a](http://b)"], "commands": [("x", "y" * 5000)] * 50})
    assert len(text) < 65_000 and "````text" in text and "\n# y" not in text and "<script" not in text.replace("\\<", "")
    assert "436 more" in text
