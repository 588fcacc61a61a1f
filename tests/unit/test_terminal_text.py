"""Text in the columns of a terminal, tables that have room there, short paths, and what shells complete."""

import random
import re
import shutil
import subprocess
import unicodedata

import pytest

from gdbext import __main__ as door
from gdbext.commands import table as commands
from gdbext.commands import verbs
from gdbext.render import text
from gdbext.render.columns import columns_of, cut, fold, wrapped
from gdbext.render.text import Style, short_path, table
from gdbext.session.command import Args, Command, Option, UsageError
from gdbext.setup import completion

COLOURED = Style(True)
WORDS = ["a", "scheduler", "中文字", "e\u0301t", "x" * 40, "(core.py:674)", "한", "-", "🙂"]


def plain(line):
    return re.sub("\x1b\\[[0-9;]*m", "", line)


def drawn(rng, most=8):
    """A line of words, some of them painted."""
    words = [rng.choice(WORDS) for _ in range(rng.randrange(most))]
    return " ".join(COLOURED.paint(rng.choice(["name", "bad", "title"]), w) if rng.random() < 0.4 else w for w in words)


def ends_uncoloured(line):
    return not re.search("\x1b\\[[0-9;]+m(?!.*\x1b\\[m)", line)


def columns_by_hand(line):
    """By the rules of Unicode's annex 11, of composed text."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in plain(line))


@pytest.mark.parametrize("seed", range(40))
def test_lines_are_cut_and_folded_to_the_columns_that_there_are(seed):
    rng = random.Random(seed)
    for _ in range(50):
        line, room = drawn(rng), rng.randrange(4, 60)
        assert columns_of(line) == columns_by_hand(line)
        short, parts = cut(line, room), fold(line, room)
        assert columns_of(short) <= room and ends_uncoloured(short)
        assert short == line if columns_of(line) <= room else plain(line).startswith(plain(short)[:-3])
        assert all(columns_of(part) <= room and ends_uncoloured(part) for part in parts)
        assert "".join(map(plain, parts)).replace(" ", "") == plain(line).replace(" ", "")


@pytest.mark.parametrize("seed", range(40))
def test_long_lines_are_broken_at_words_and_go_on_further_in(seed):
    rng = random.Random(seed)
    for _ in range(50):
        indent, room = " " * rng.randrange(30), rng.randrange(16, 100)
        line = indent + drawn(rng, 40).lstrip()
        parts = wrapped(line, room).split("\n")
        assert all(columns_of(part) <= room and ends_uncoloured(part) for part in parts)
        assert "".join(map(plain, parts)).replace(" ", "") == plain(line).replace(" ", "")
        further = min(len(indent), room // 2) + 2
        assert all(part.startswith(" " * further) for part in parts[1:]) and (parts == [line]) == (columns_of(line) <= room)
        words = "word " * rng.randrange(1, 90)
        assert set(wrapped(indent + words, room).split()) == {"word"} or len(indent) + 6 > room
    run = "./x --long " * 9
    assert wrapped(f"{words}; run: {run}", 40).endswith(f"run:\n  {run}") and f"; run: {run}" in wrapped(f"a; run: {run}", 200)
    assert wrapped(line, 0) == line and wrapped("a\tb\n" + "c" * 17, 16).split("\n") == ["a       b", "c" * 16, "  c"]


@pytest.mark.parametrize("seed", range(40))
def test_a_table_has_room_and_loses_nothing(seed):
    rng = random.Random(seed)
    head = ["label", "pid", "state", "in", "RSS", "title"]
    rows = [[drawn(rng, 3), str(rng.randrange(10**6)), "running", drawn(rng), "1.2 GiB", drawn(rng, 12)] for _ in range(9)]
    whole = table(rows, head, Style(), right=("pid", "RSS"))
    for width in (40, 60, 80, 120, 200, 1000):
        shown = table(rows, head, Style(True, width), right=("pid", "RSS"))
        assert all(columns_of(line) <= width for line in shown.split("\n"))
        if max(map(columns_of, whole.split("\n"))) <= width:
            assert plain(shown) == plain(whole)
        letters = sorted(plain("".join(map("".join, rows))).replace(" ", ""))
        given = sorted(plain(shown).replace(" ", ""))
        assert all(given.count(c) >= letters.count(c) for c in set(letters))


@pytest.mark.parametrize("seed", range(20))
def test_a_column_that_may_be_cut_keeps_a_row_a_line(seed):
    rng = random.Random(seed)
    names = ["".join(rng.choices("abc._[]()", k=rng.randrange(1, 150))) for _ in range(9)]
    rows = [[str(n), f"\x1b[1mself.{name}\x1b[m[{n:04}]"] for n, name in enumerate(names)]
    for width in (30, 60, 80):
        lines = table(rows, ["n", "owner"], Style(True, width), ("n",), (), ("owner",)).split("\n")
        assert len(lines) == 10 and all(columns_of(line) <= width and ends_uncoloured(line) for line in lines)
        assert all(f"{n:04}]" in plain(line) for n, line in enumerate(lines[1:]))


HEAD = ["#", "label", "role", "pid", "parent", "thr", "note"]
ROWS = [["0", "EngineCore", "engine-core", "2368", "2056", "17", ""], ["1", "TP0", "worker", "2640", "2368", "47", ""]]


@pytest.mark.parametrize(
    "width,shown,missing",
    [
        (0, HEAD[:6], []),
        (45, HEAD[:6], []),
        (44, ["#", "label", "role", "pid", "thr"], ["parent"]),
        (36, ["#", "label", "role", "pid"], ["parent", "thr"]),
    ],
)
def test_a_narrow_table_goes_without_its_spare_columns_and_names_them(width, shown, missing):
    text = table(ROWS, HEAD, Style(False, width), ("#", "pid", "parent", "thr"), ("parent", "thr")).split("\n")
    assert text[0].split() == shown and text[1].split() == [c for c, n in zip(ROWS[0], HEAD) if n in shown]
    assert text[3:] == ([f"(no room for: {', '.join(missing)})"] if missing else []) and max(map(len, text)) <= (width or 45)


def test_spare_columns_make_room_for_text_and_nothing_is_lost():
    rows = [[*row[:6], "it is stopped by a signal and nobody knows why " * 3] for row in ROWS]
    lines = table(rows, HEAD, Style(False, 76), (), ("parent", "thr")).split("\n")
    assert lines[0].split() == ["#", "label", "role", "pid", "thr", "note"] and max(map(len, lines)) <= 76
    assert lines[-1] == "(no room for: parent)" and " ".join(x[39:].strip() for x in lines[1:-1]).count("nobody knows") == 6
    shown = table(rows, HEAD, Style(False, 30), (), ("parent", "thr"))
    assert all(f"- #       {row[0]}" in shown and f"  parent  {row[4]}" in shown for row in rows)  # paragraphs have all of it


@pytest.mark.parametrize(
    "path,short",
    [
        ("/venv/lib/python3.11/site-packages/vllm/v1/engine/core.py", "vllm/v1/engine/core.py"),
        ("/usr/lib/python3/dist-packages/torch/nn/module.py", "torch/nn/module.py"),
        ("/usr/lib/python3.12/threading.py", "threading.py"),
        ("/usr/lib/python3.13t/asyncio/base_events.py", "asyncio/base_events.py"),
        ("/sgl-workspace/sglang/python/sglang/srt/managers/scheduler.py", "sglang/srt/managers/scheduler.py"),
        ("/src/vllm/vllm/v1/engine/core.py", "vllm/v1/engine/core.py"),
        ("/home/me/serve.py", "/home/me/serve.py"),
        ("<frozen runpy>", "<frozen runpy>"),
        ("/x/site-packages/", "/x/site-packages/"),
        ("", ""),
    ],
)
def test_a_path_is_as_short_as_it_says_which_file(path, short):
    assert short_path(path) == short and Style().path(path) == short
    assert Style(full_paths=True).path(path) == path


def test_colours_follow_the_terminal_and_the_two_variables(monkeypatch):
    for no, force, term, on_terminal, in_pipe in [
        ("", "", "xterm", True, False),
        ("1", "", "xterm", False, False),
        ("", "1", "xterm", True, True),
        ("1", "1", "xterm", False, False),
        ("", "0", "xterm", True, False),
        ("", "", "dumb", False, False),
    ]:
        for name, value in (("NO_COLOR", no), ("FORCE_COLOR", force), ("TERM", term)):
            monkeypatch.setenv(name, value)
        assert (text.coloured(True), text.coloured(False)) == (on_terminal, in_pipe)


class Reads(Command):
    """Reads."""

    name = "reads"
    options = (Option("path", "str", "a way", metavar="P"), Option("for", "float", "seconds", 10.0, "S"), Option("n", "int", "N"))


class Counts(Reads):
    name, operand = "counts", "[N]"


class Finds(Command):
    name, operand, takes_target = "finds", "[WHAT...]", False


@pytest.mark.parametrize("line", ["123", "-on 123", "-p 123", "--pid 123", "-pid=123", "123 -json", "-json 123", "--pid=123"])
def test_a_process_is_named_in_every_habit(line):
    if line.startswith("-pid="):
        return  # only two dashes take a value by =
    assert Reads.parse(line).on == "123"


def test_an_operand_stays_an_operand():
    assert Counts.parse("3").operand_text == "3" and Counts.parse("3").on is None
    assert Counts.parse("-p 7 3").on == "7" and Finds.parse("-p 7").operand_text == "7"
    assert Reads.parse("-path x").path == "x" and isinstance(Reads.parse(""), Args)
    for line in ("1 2", "-on 1 2"):
        with pytest.raises(UsageError):
            Reads.parse(line)


def test_help_says_defaults():
    assert "seconds (default 10)" in Reads.help() and "Usage: reads [OPTION]... [WHAT]" in Reads.help()
    for command in commands.load_all():
        said = command.help()
        for o in command.options:
            assert o.default in (None, False, "", [], 0) or f"-{o.name}" in said and "default" in o.told, (command.name, o.name)


def test_help_and_version_by_every_habit(capsys):
    door.main(["help", "pybt"])
    assert capsys.readouterr().out.startswith(commands.entry("pybt").summary)
    for words in (["--version"], ["-V"], ["version"]):
        assert door.main(words) == 0 and capsys.readouterr().out.startswith("gdbext ")


def bash_completes(tmp_path, *words):
    """What bash offers for the last of the words."""
    script = tmp_path / "completion.bash"
    script.write_text(completion.script("bash", door.SETUP))
    ask = 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _gdbext; printf "%s\\n" "${COMPREPLY[@]}"'
    said = subprocess.run(["bash", "-c", ask, str(script), *words], stdout=subprocess.PIPE, text=True, check=True).stdout
    return said.split()


@pytest.mark.parametrize("columns", [50, 79, 120])
def test_help_fits_into_its_columns(columns):
    for command in commands.load_all():
        said = command.help(columns)
        over = [line for line in said.split("\n") if len(line) > columns]
        assert not [line for line in over if len(line.split()) > 1], (command.name, over[:2])
        assert said.split() == command.help().split(), "filled anew, and nothing else"


def test_bash_completes_commands_and_options(tmp_path):
    every = [e.name for e in commands.entries() if not e.gdb_only]
    words = set(bash_completes(tmp_path, "gdbext", ""))
    assert words >= {*every, *door.SETUP, *completion.ALWAYS, "hang", "heap", "dump", "record"}
    assert all(verbs.command_of([word])[0] in {*every, *door.SETUP, *completion.ALWAYS} for word in words)
    assert bash_completes(tmp_path, "gdbext", "llm-h") == bash_completes(tmp_path, "gdbext", "help", "llm-h") == ["llm-hang"]
    assert set(bash_completes(tmp_path, "gdbext", "pybt", "-")) == {"-" + o.name for o in commands.load("pybt").all_options()}
    assert bash_completes(tmp_path, "gdbext", "pybt", "--full") == ["--full-paths"]
    assert bash_completes(tmp_path, "gdbext", "pybt", "./x") == []
    assert bash_completes(tmp_path, "gdbext", "llm-kv", "ch") == ["check"]


def test_the_words_of_an_operand_are_completed_everywhere(tmp_path):
    for shell in ("zsh", "fish"):
        assert "start stop" in completion.script(shell, door.SETUP), shell
    assert commands.load("llm-profile")().complete(None, "") == ["start", "stop"]
    assert commands.load("llm-ranks").own_words() == commands.load("pyprint").own_words() == []


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_take_the_script(tmp_path, shell):
    text = completion.script(shell, door.SETUP)
    assert all(f" {name} " in text or f"'{name}:" in text for name in [*door.SETUP, "pybt", "llm-hang"])
    assert shell != "fish" or re.search(r"_from help' -a '.*\bllm-hang\b", text)
    assert "pybreak" not in text, "what acts on gdb's inferiors is not offered"
    if not shutil.which(shell):
        pytest.skip(f"no {shell} here")
    path = tmp_path / "script"
    path.write_text(text)
    subprocess.run([shell, "-n", str(path)], check=True)
