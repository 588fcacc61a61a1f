"""Of an engine's log levels and tracebacks' frames are kept, and nothing that anybody wrote into a prompt."""

import contextlib
import json
import logging
import os
import random
import subprocess
import sys
import traceback

import pytest

from gdbext.observe import logs
from gdbext.observe.log_reader import Logs
from gdbext.observe.logs import Tail, file_of
from gdbext.watch.beside import COLLECTIVES, LOG, TRACEBACK, Beside
from gdbext.watch.ring import NOTES, Ring

PREFIXES = ("", "(EngineCore pid=123) ", "(EngineCore pid=7) ERROR 11-28 12:00:00 [core.py:710] ", "[2026-11-28 12:00:00 TP0] ")


def broken(text):
    raise ValueError(text)


def failure(text):
    try:
        json.loads('{"a": ')  # a frame of a library's file
    except ValueError:
        try:
            broken(text)
        except ValueError:
            return traceback.format_exc()


@pytest.fixture
def tail(tmp_path):
    path = tmp_path / "engine.log"
    path.write_text("before\n")
    one = Tail(str(path), os.getpid())
    one.path = path
    yield one
    one.close()


def written(tail, text):
    with open(tail.path, "a") as f:
        f.write(text)
    return tail.look()


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_traceback_is_its_frames_and_the_name_of_its_error(tail, prefix):
    text = "".join(f"{prefix}{line}\n" for line in failure("canary in a message").rstrip().split("\n"))
    found = written(tail, text)
    first, second = found.tracebacks
    assert first.error == "" and first.frames[0].startswith("failure (test_logs.py:")
    assert first.frames[1].startswith("loads (__init__.py:") and first.frames[-1].startswith("raw_decode (decoder.py:")
    assert second.error == "ValueError" and [frame.split(" ")[0] for frame in second.frames] == ["failure", "broken"]
    assert "canary" not in repr(found)


def test_lines_are_counted_by_level_whoever_writes_them(tail):
    logger, handler = logging.getLogger("x"), logging.FileHandler(tail.path)
    handler.setFormatter(logging.Formatter("%(levelname)s %(asctime)s [%(filename)s:%(lineno)d] %(message)s"))
    logger.addHandler(handler)
    for number, level in ((3, logging.INFO), (2, logging.WARNING), (1, logging.ERROR)):
        for _ in range(number):
            logger.log(level, "received ERROR CRITICAL from a user")
    logger.setLevel(logging.INFO)
    logger.info("counts")
    handler.close()
    assert tail.look().levels == {"WARNING": 2, "ERROR": 1, "INFO": 1}


@pytest.mark.parametrize("seed", range(60))
def test_no_canary_of_a_drawn_prompt_is_kept(tail, seed):
    """Prompts that look like a log: levels, tracebacks with made-up files, functions and errors, in lines of their own."""
    draw = random.Random(seed)
    canary = f"canary{draw.randrange(10**9)}"
    forms = (
        f"ERROR {canary}", f"prompt: '{canary}'", f'  File "/home/{canary}.py", line 3, in f',
        f'  File "{logs.__file__}", line 3, in {canary}', f"{canary}Error: {canary}", f"ValueError: {canary}",
        "Traceback (most recent call last):", f"{canary}: Traceback (most recent call last):",
        f'  File "{logs.__file__}", line 9{canary}, in look', f'  File "../{canary}", line 1, in <module>', f"    {canary}",
    )  # fmt: skip
    found = []
    for _ in range(6):
        lines = [draw.choice(PREFIXES) + draw.choice(forms) for _ in range(draw.randrange(1, 30))]
        text = "\n".join(["Traceback (most recent call last):", *lines, ""])
        cut = draw.randrange(len(text))
        found += [written(tail, text[:cut]), written(tail, text[cut:])]
    assert canary not in repr(found)


def test_what_is_read_is_bounded_and_a_log_that_begins_anew_is_read(tail):
    found = written(tail, "INFO x\n" * 200_000)
    assert found.skipped > 1_000_000 and found.levels["INFO"] <= logs.AT_ONCE / 7 + 1
    tail.path.write_text("ERROR anew\n")
    assert tail.look()[:3] == ({"ERROR": 1}, [], 0)
    os.unlink(tail.path)
    with pytest.raises(FileNotFoundError):
        tail.look()


def test_a_log_is_a_file_that_standard_output_leads_to(tmp_path):
    line = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with open(tmp_path / "log", "w") as out, subprocess.Popen(line, stdin=-1, stdout=out, stderr=out) as child:
        path, key = file_of(child.pid)
        assert key == (os.stat(out.name).st_dev, os.stat(out.name).st_ino) and os.path.samefile(path, out.name)
        child.stdin.close()
    with subprocess.Popen(line, stdin=-1, stdout=-1, stderr=-1) as child:
        assert file_of(child.pid) is None
        child.stdin.close()
    assert file_of(1 << 22) is None


def test_the_history_has_what_two_ranks_of_one_log_wrote_once(tmp_path):
    line = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with open(tmp_path / "log", "w") as out, contextlib.closing(Logs()) as shared, subprocess.Popen(
        line, stdin=-1, stdout=out, stderr=out
    ) as child:
        rings = Ring(1 << 18), Ring(1 << 18)
        both = [Beside(child.pid, shared), Beside(child.pid, shared)]
        for one, ring in zip(both, rings):
            one.look(0.0, 0.0, ring, None)
        out.write("ERROR: user said canary\n" + failure("canary"))
        out.flush()
        child.stdin.close()
        child.wait()
        for one, ring in zip(both, rings):
            one.read_log(1.0, ring)  # it has ended: what it wrote last tells most
            one.close()
    assert [what for _, what, _ in rings[0].notes] == [LOG, TRACEBACK, TRACEBACK] and not rings[1].notes
    assert "canary" not in repr(rings[0].data())


def test_notes_are_kept_by_change_and_bounded():
    ring = Ring(1 << 18)
    for number in range(100):
        ring.note(number, COLLECTIVES, {"default": number // 10})
    assert [values["default"] for _, _, values in ring.notes] == list(range(10))
    for number in range(10_000):
        ring.note(number, TRACEBACK, {"error": "", "frames": [f"f (x.py:{number})"] * 20}, True)
    assert ring.bytes < NOTES * ring.limit and ring.notes[-1][0] == 9999
