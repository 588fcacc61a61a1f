"""Every command in terminals of several widths, with and without colours: the screen that results is looked at, not the bytes."""

import gzip
import json
import os
import re
import subprocess
import sys

import pytest
from harness import terminals
from harness.command_lines import ASKED, LINES, SUBJECT, words_of
from harness.gdb_run import INIT, ROOT
from harness.subjects import SUBJECTS, spawned

from gdbext.commands import table

WIDTHS = (60, 80, 120, 200)
# A stand-in engine under the title that vLLM's own has
ENGINE = "import runpy, setproctitle, sys; setproctitle.setproctitle('VLLM::EngineCore_DP0'); sys.argv[1:] = ['12', 'work']; "
ENGINE += f"sys.path.insert(0, {SUBJECTS!r}); runpy.run_path({os.path.join(SUBJECTS, 'requests_vllm.py')!r}, run_name='__main__')"
# An escape whose first byte was escaped, or has got lost, and an error that nobody expected
BROKEN = re.compile(
    r"\\\\x1b|\\\\u001b|(?<![\\w.])\\[\\d+(;\\d+)*m|Traceback \\(most recent call last\\):\n  File \"[^\"]*gdbext/"
)
# Commands that lay out tables: none of their lines is wider than the terminal
COPIED = re.compile(r"^ *(?:[{\"]|python3 -m pip )")  # JSON, and what is there to be copied: stays whole
# source, a shell's lines, and those between which gdb's own stand
WHOLE = ("pylist", "llm-gpucore", "llm-follow", "llm-attach", "llm-detach", "llm-continue")
# the set-up: no commands of the table
ALONE = ("cache", "completion", "mcp", "install", "uninstall", "doctor", "skill", "gdb", "vscode", "allow")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """-> what the letters of the lines stand for; E: a stand-in engine"""
    folder = tmp_path_factory.mktemp("terminals")
    with gzip.open(os.path.join(ROOT, "tests", "unit", "cores", "h100_driver_580.gz")) as f:
        (folder / "gpu.core").write_bytes(f.read())
    python = [sys.executable, "-c"]
    with spawned([*python, SUBJECT], ready="ready") as process, spawned([*python, ENGINE]) as engine:
        snapshot = str(folder / "snapshot")
        subprocess.run([*GDBEXT, "llm-snapshot", str(process.pid), "-o", snapshot], check=True, cwd=ROOT, capture_output=True)
        pids = {"P": str(process.pid), "E": str(engine.pid)}
        yield {**pids, "G": str(folder / "gpu.core"), "C": snapshot, "D": str(folder)}


GDBEXT = [sys.executable, "-m", "gdbext"]


def environment(**more):
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")}
    return {**kept, "TERM": "xterm-256color", **more}


def check(name, seen, width, coloured):
    """What holds of each screen."""
    lines = seen.unwrapped
    text = "\n".join(line for _, line in lines)
    assert not BROKEN.search(text), text
    assert coloured or not seen.coloured, text
    prose = [line for columns, line in lines if columns > width and not COPIED.match(line)]
    assert name in WHOLE or not prose, (name, width, prose)
    if ASKED[name].table:
        rows = [(columns, line) for columns, line in lines if re.search(r"\S  +\S.*\S  +\S", line)]  # not sentences
        too_wide = [line for columns, line in rows if columns > width]
        assert not too_wide, (name, width, too_wide)


def lines_of(name, place, folder):
    for line in LINES[name] + [(line, None, None) for line in ASKED[name].more]:
        yield words_of(line[0], {**place, "D": folder})


MARK = "=-=-="
EACH = "import json, sys; from gdbext.__main__ import main\n"
EACH += f"for words in json.loads(sys.argv[1]): print({MARK!r} + words[0], flush=True); main(words); sys.stdout.flush()"


def parts_of(seen):
    """(command, what it showed) of a screen that has marks between them."""
    for part in seen.data.split(MARK.encode())[1:]:
        name, _, data = part.partition(b"\r\n")
        yield name.decode(), terminals.Shown(0, data, seen.columns)


@pytest.mark.drawn(2)
@pytest.mark.parametrize("width,coloured", [(60, True), (80, False), (120, True), (200, False)])
def test_every_command_on_a_terminal(place, tmp_path, width, coloured):
    env = environment(**({} if coloured else {"NO_COLOR": "1"}))
    lines = [[name, *words] for name in LINES if name not in ALONE for words in lines_of(name, place, str(tmp_path))]
    seen = terminals.shown([sys.executable, "-c", EACH, json.dumps(lines)], width, cwd=ROOT, env=env, timeout=600)
    parts = list(parts_of(seen))
    assert [name for name, _ in parts] == [line[0] for line in lines], seen.text[-2000:]
    for name, part in parts:
        check(name, part, width, coloured)
        assert part.text, name
    painted = {name for name, part in parts if part.coloured}
    assert {"pybt", "llm-top", "pythreads"} <= painted if coloured else not painted


@pytest.mark.drawn(2)
@pytest.mark.parametrize("width,coloured", [(60, True), (80, False), (120, True), (200, False)])
def test_every_command_in_gdb_on_a_terminal(plain_gdb, gdb_path, place, tmp_path, width, coloured):
    """gdb with a terminal, where its own styling and width are on."""
    line = [gdb_path, "-nx", "-q", "-iex", "set debuginfod enabled off", "-iex", "set pagination off", "-iex", "set confirm off"]
    line += ["-p", place["P"], "-ex", f"source {INIT}"]
    names = [name for name in table.names() if name != "llm-detach"] + ["llm-detach"]
    for name in names:
        more = ASKED[name].in_gdb.format(P=place["P"], D=tmp_path)
        line += ["-ex", f"echo {MARK}{name}\\n", "-ex", f"{name} {more}"]
    env = environment(**({} if coloured else {"NO_COLOR": "1"}))
    seen = terminals.shown([*line, "-ex", "quit"], width, cwd=str(tmp_path), env=env, timeout=600)
    parts = list(parts_of(seen))
    assert [name for name, _ in parts] == names, seen.text[-2000:]
    for name, part in parts:
        check(name, part, width, coloured)


LONG = """
import time
class Long:
    def a_name_that_takes_a_good_part_of_a_line(self, text='中文字' * 9):
        time.sleep(900)
print('ready', flush=True)
Long().a_name_that_takes_a_good_part_of_a_line()
"""


def test_source_is_shown_in_colours_and_letter_by_letter(tmp_path):
    source = tmp_path / "long.py"
    source.write_text(LONG)
    with spawned([sys.executable, str(source)], ready="ready") as process:
        seen = terminals.shown([*GDBEXT, "pylist", "-on", str(process.pid)], 80, cwd=ROOT, env=environment())
    shown = [line[8:] for _, line in seen.unwrapped if re.match(r".\s+\d+(  |$)", line)]
    assert seen.coloured and shown == LONG.split("\n")[: len(shown)] and len(shown) >= 7, shown


@pytest.mark.parametrize("way", ["pipe", "forced", "none and forced", "head", "closed", "full", "ascii", "latin-1"])
@pytest.mark.drawn(3)
def test_what_is_no_terminal(place, way):
    env = environment()
    env.update({"forced": {"FORCE_COLOR": "1"}, "none and forced": {"FORCE_COLOR": "1", "NO_COLOR": "1"}}.get(way, {}))
    env.update({"PYTHONIOENCODING": way} if way in ("ascii", "latin-1") else {})
    end = {"head": " | head -1", "closed": " >&-", "full": " > /dev/full"}.get(way, "")
    for words in ("pybt -all -on " + place["P"], "llm-ranks -engine vllm", "--help", "pybt --help", "llm guide", "nonsense"):
        line = f"{sys.executable} -m gdbext {words}{end}"
        done = subprocess.run(["/bin/sh", "-c", line], cwd=ROOT, env=env, capture_output=True)
        text = (done.stdout + done.stderr).decode()
        assert "Traceback" not in text and "Exception ignored" not in text and "Error:" not in text, text
        assert (b"\x1b[" in done.stdout) == (way == "forced" and "--help" not in words and words != "nonsense"), text
        assert way == "head" or done.returncode == (way == "full" or words == "nonsense"), (words, done.returncode, text)
        assert way != "full" or done.stderr.count(b"\n") == 1 and (words == "nonsense" or b"No space left" in done.stderr), text


def test_frames_are_links_where_the_terminal_knows_them():
    """The screen is the same with them and without; there are none in a pipe, without colours and on a dumb terminal."""
    known = {"KONSOLE_VERSION": "220401"}
    with spawned([sys.executable, f"{SUBJECTS}/agreeing.py", "quiet"], ready="{") as process:
        words = [*GDBEXT, "pybt", "-on", str(process.pid)]
        plain = terminals.shown(words, 60, cwd=ROOT, env=environment())
        linked = terminals.shown(words, 60, cwd=ROOT, env=environment(**known))
        others = [
            terminals.shown(words, 60, cwd=ROOT, env=environment(**known, **one)) for one in ({"NO_COLOR": "1"}, {"TERM": "dumb"})
        ]
        piped = subprocess.run(words, cwd=ROOT, env=environment(**known), stdout=subprocess.PIPE, check=True).stdout
    link = rb"\x1b\]8;;file://[^/]*/[^\x1b]*/agreeing\.py\x1b\\"
    assert len(re.findall(link, linked.data)) == 2 and linked.text == plain.text and "main" in plain.text
    assert not any(b"\x1b]8" in data for data in (plain.data, piped, *(one.data for one in others)))
