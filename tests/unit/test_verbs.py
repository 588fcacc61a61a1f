"""The words that people bring from other tools, their options and numbers, and a pid in front: what they mean here."""

import os
import sys

import pytest

from gdbext.commands import table, verbs
from gdbext.errors import GdbextError
from gdbext.session.options import matching
from gdbext.session.session import Session
from gdbext.setup import outside


@pytest.mark.parametrize(
    ("typed", "name", "rest"),
    [
        ("dump 7", "pybt", "-all 7"),
        ("dump --pid 7 --native", "llm-bt", "-all --pid 7"),
        ("remote 7 --native-all", "llm-bt", "-all 7"),
        ("thread apply all bt -p 7", "llm-bt", "-all -p 7"),
        ("info threads", "pythreads", ""),
        ("ps", "llm-ranks", ""),
        ("gcore 7", "llm-snapshot", "7"),
        ("dump -s --pid 7", "llm-stacks", "-subprocesses --pid 7"),
        ("dump --native --subprocesses 7", "llm-stacks", "-subprocesses 7"),
        ("hang all", "llm-hang", "all"),
        ("heap 7", "pyheap", "7"),
        ("llm-hang", "llm-hang", ""),
        ("nonsense x", "nonsense", "x"),
    ],
)
def test_a_word_of_another_tool_is_a_command(typed, name, rest):
    assert verbs.command_of(typed.split()) == (name, rest.split())


def test_every_word_is_one_of_ours_and_takes_its_options():
    for words, (name, options) in verbs.VERBS.items():
        assert words not in table.names() and f"llm-{words}" not in table.names()
        table.load(name).parse(" ".join([*options, *["1"] * (name == "pyprint")]))
    for hint in verbs.HINTS.values():
        named = [word for part in hint.split(": ")[-1].split(", ") for word in part.split()[:1]]
        assert all(verbs.command_of([word])[0] in table.names() for word in named), hint


def test_a_core_without_a_slash_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "core.7").touch()
    assert verbs.command_of(["core", "core.7"]) == ("pybt", ["-all", "./core.7"])
    assert verbs.command_of(["core", "TP0"]) == ("pybt", ["-all", "TP0"])
    (tmp_path / "python3").touch()
    assert verbs.command_of(["core", "core.7", "python3", "--locals"]) == ("pybt", ["-all", "./core.7", "--locals"])


@pytest.mark.parametrize("name", ["tree", "flamegraph", "attach", "26980", "--pid", "llm-rank", "dumpp", "recrd"])
def test_what_is_no_command_names_one(name):
    assert verbs.meant(name)
    assert not verbs.meant("xyzzyq")


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("-d 5s", "for", 5.0),
        ("-duration 2m", "for", 120.0),
        ("--duration=500ms", "for", 0.5),
        ("-for 1h", "for", 3600.0),
        ("-r 50", "rate", 50.0),
        ("-f speedscope", "format", "speedscope"),
        ("--output x.json", "o", ["x.json"]),
        ("-p26980", "on", "26980"),
        ("--pid 26980", "on", "26980"),
        ("-s 7", "subprocesses", True),
        ("--full-filenames 7", "full_paths", True),
        ("--nonblocking 7", "unstopped", True),
        ("-g 7", "gil", True),
    ],
)
def test_options_have_the_names_and_numbers_of_other_tools(line, key, value):
    assert getattr(table.load("llm-record").parse(line), key) == value


@pytest.mark.parametrize(
    ("command", "word", "means"),
    [
        ("llm-stacks", "-s", ["samples"]),  # what they meant before other tools' words did
        ("llm-record", "-n", ["native"]),
        ("llm-record", "-s", ["subprocesses"]),
        ("llm-top", "-s", ["subprocesses"]),
        ("llm-bt", "-s", []),  # no users' content by one letter
        ("llm-bt", "-sh", []),
        ("llm-bt", "-show", ["show-content"]),
        ("llm-focus", "-p", ["part"]),
        ("pybt", "-nonblock", ["unstopped"]),
        ("llm-hang", "-p", ["on"]),
    ],
)
def test_a_few_letters_mean_what_a_command_itself_has(command, word, means):
    found = [o.name for o in matching(word, table.load(command).all_options())]
    assert found == means or not means and "show-content" not in found, found


def test_no_filter_of_ours_holds_for_a_program_that_is_started():
    with pytest.raises(GdbextError, match="leave it out"):
        table.load("llm-record").parse("--nonblocking -- true")


def test_a_programs_own_words_name_no_machine(capfd):
    assert outside.run("llm-record", ["-for", "0.05", "--", "false", "ssh:gpu17", "--json"]) == 1
    assert "false ended with status 1" in capfd.readouterr().err
    assert outside.run("llm-record", ["ssh:gpu17", "--", "true"]) == 1
    assert "this machine alone" in capfd.readouterr().err


@pytest.mark.parametrize("line", ["-for 5x", "-for s", "-rate 5s", "-p26980x"])
def test_what_is_no_time_is_refused(line):
    with pytest.raises(GdbextError):
        table.load("llm-record").parse(line)


def test_a_pid_in_front_is_the_process():
    own = str(os.getpid())
    for name, words in (("pytasks", [own]), ("pylist", [own, "3"]), ("pyprint", [own, "x.y"]), ("pylist", ["-json", own])):
        args = table.load(name).parse(outside.line_of(table.load(name), outside.with_process(table.load(name), words)))
        assert args.on == own and args.operand_text == " ".join(word for word in words if word not in (own, "-json"))
    for name, words in (("pylist", ["3", "-on", own]), ("pyprint", ["x", own]), ("llm-hang", [own]), ("pylist", ["999999999"])):
        assert outside.with_process(table.load(name), words) == words


NO_PROCESS = ("llm", "llm-gpucore", "llm-layers")  # the guide, a file, two files


@pytest.mark.parametrize("command", [one for one in table.load_all() if not one.gdb_only and one.name not in NO_PROCESS])
def test_every_command_takes_a_pid_as_its_first_word(command):
    own = str(os.getpid())
    first = {
        "llm-inject": "faulthandler",
        "llm-profile": "start",
        "pyprint": "x",
        "pytensor": "x",
        "llm-request": "r",
        "llm-addr": "0x1",
    }
    more = first.get(command.name, "")
    typed = outside.with_process(command, [own, *([more] if more else [])])
    args = command.parse(outside.line_of(command, typed))
    named = (getattr(args, "on", None) or args.operand_text).split()
    assert own in named, (typed, vars(args))
    assert not more or more in args.operand_text.split() and args.operand_text.split()[0] == more


def test_every_command_that_writes_a_file_takes_o():
    files = {"llm-record", "llm-stacks", "llm-report", "llm-bundle", "llm-snapshot", "llm-memory", "pyheap", "pytensor"}
    files |= {"pytensors", "llm-kv", "llm-layers"}
    for name in files:
        for word in ("-o", "--output"):
            found = matching(word, table.load(name).all_options())
            assert [o.kind for o in found] == ["str"], (name, word, [o.name for o in found])


def test_a_program_is_what_stands_behind_two_dashes():
    record = table.load("llm-record")
    line = outside.line_of(record, ["-o", "a b.html", "--", "python3", "-c", "import time; time.sleep(2)", "--", "-o"])
    args = record.parse(line)
    assert args.o == ["a b.html"] and args.program == ["python3", "-c", "import time; time.sleep(2)", "--", "-o"]
    for wrong in ("7 -- true", "-- "):
        with pytest.raises(GdbextError):
            record.parse(wrong)


def test_children_of_any_depth_are_meant(tmp_path):
    import subprocess

    below = f"{sys.executable} -c 'print(7, flush=True); input()'; true"
    code = f"import subprocess; subprocess.Popen(['sh', '-c', {below!r}]).wait()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stdin=subprocess.PIPE) as one:
        assert one.stdout.readline() == b"7\n"
        words = Session().with_children(str(one.pid)).split()
        one.stdin.close()
    assert words[0] == str(one.pid) and len(words) == 2, "the shell between them is no Python"
    with pytest.raises(GdbextError):
        Session().with_children("")
