"""What set-up would run on machines that are not this one, and the words between the shell and a command."""

import os
import sys

import pytest
from tools import environments, prepare_tests, run_tests, system
from tools.say import Failed, run_logged, why_it_failed

from gdbext import wheels
from gdbext.commands import table
from gdbext.errors import GdbextError
from gdbext.session.command import Command, Option, UsageError
from gdbext.setup import doctor, outside


def test_torch_comes_from_pip_first_then_from_pytorchs_index_by_uv():
    (first, pip), (second, uv) = environments.torch_plan("/env/bin/python", {}, "x86_64")
    assert pip == [["/env/bin/python", "-m", "pip", "install", f"torch=={environments.TORCH}+cpu"]]
    assert uv[0] == ["/env/bin/python", "-m", "pip", "install", "uv"]
    assert (
        uv[1][1:4] == ["-m", "uv", "pip"] and "--torch-backend=cpu" in uv[1] and uv[1][-1] == f"torch=={environments.TORCH}+cpu"
    )
    assert uv[1][uv[1].index("--python") + 1] == "/env/bin/python"
    assert first != second


def test_an_index_of_the_users_is_the_only_way():
    ((_, commands),) = environments.torch_plan("/py", {"GDBEXT_TORCH_INDEX": "file:///mine"}, "x86_64")
    assert commands[0][commands[0].index("--extra-index-url") + 1] == "file:///mine" and len(commands) == 1


def test_only_x86_has_a_version_of_torch_for_cpus_alone():
    assert environments.torch_requirement("x86_64").endswith("+cpu") and "+" not in environments.torch_requirement("aarch64")


def test_an_environment_is_named_after_what_it_holds(monkeypatch, tmp_path):
    monkeypatch.setenv("GDBEXT_CACHE", str(tmp_path))
    before = environments.folder_of("vllm", (3, 11))
    assert before.startswith(str(tmp_path)) and before != environments.folder_of("vllm", (3, 12))
    steps, versions = environments.ENVIRONMENTS["vllm"]
    monkeypatch.setitem(environments.ENVIRONMENTS, "vllm", (steps + [("remove", ["x"])], versions))
    assert environments.folder_of("vllm", (3, 11)) != before


def test_an_environment_that_was_not_finished_does_not_count(monkeypatch, tmp_path):
    monkeypatch.setenv("GDBEXT_CACHE", str(tmp_path))
    folder = environments.folder_of("tests", (3, 11))
    os.makedirs(os.path.join(folder, "bin"))
    open(os.path.join(folder, "bin", "python"), "w").close()
    assert environments.existing("tests") is None
    open(os.path.join(folder, "complete"), "w").close()
    assert environments.existing("tests") == os.path.join(folder, "bin", "python")


def test_a_broken_environment_is_made_again_and_a_failure_names_the_log(monkeypatch, tmp_path):
    monkeypatch.setenv("GDBEXT_CACHE", str(tmp_path))
    monkeypatch.setitem(
        environments.ENVIRONMENTS,
        "small",
        ([("write", "marker.py", "x = 1\n"), ("pip", "nothing", ["./not-there"])], [sys.version_info[:2]]),
    )
    monkeypatch.setattr(environments, "find_pythons", lambda: {sys.version_info[:2]: sys.executable})

    def without_pip(python, folder, log):  # in a tenth of the time: a step with pip fails in any case
        run_logged("an empty environment", [python, "-m", "venv", "--without-pip", folder], log)

    monkeypatch.setattr(environments, "_make_venv", without_pip)
    with pytest.raises(Failed, match="nothing failed.*") as e:
        environments.environment("small")
    assert "small-" in str(e.value) and ".log" in str(e.value) and environments.existing("small") is None
    monkeypatch.setitem(environments.ENVIRONMENTS, "small", ([("write", "marker.py", "x = 1\n")], [sys.version_info[:2]]))
    folder = environments.folder_of("small", sys.version_info[:2])
    os.makedirs(os.path.join(folder, "left-over"))
    python = environments.environment("small")
    assert environments.environment("small") == python and not os.path.exists(os.path.join(folder, "left-over"))
    assert os.popen(f"{python} -c 'import marker; print(marker.x)'").read() == "1\n"


def test_no_fitting_python_is_said_with_those_that_are_here():
    with pytest.raises(Failed, match=r"needs Python 3\.11; found: 3\.9"):
        environments.choose_python("sglang", [(3, 11)], {(3, 9): "/py39"})
    assert environments.choose_python("vllm", [(3, 11), (3, 12)], {(3, 9): "a", (3, 12): "b"}) == ((3, 12), "b")


@pytest.mark.parametrize("manager", sorted(system.MANAGERS))
def test_a_package_is_installed_by_root_and_by_sudo_and_else_asked_for(manager):
    commands, line = system.package_plan("gdb", manager, 0, False)
    assert commands[-1][0] == manager and commands[-1][-1] == "gdb" and "sudo" not in line
    commands, _ = system.package_plan("gdb", manager, 1000, True)
    assert all(c[:2] == ["sudo", "-n"] for c in commands)
    commands, line = system.package_plan("gdb", manager, 1000, False)
    assert commands is None and line.startswith(f"sudo {manager} ") and line.endswith(" gdb")


def test_no_package_manager_is_said():
    assert system.package_plan("gdb", None, 0, False)[0] is None


def test_parts_and_pytests_arguments_are_told_apart():
    assert run_tests.split([]) == (run_tests.PARTS, [])
    assert run_tests.split(["gdb", "unit", "-k", "unit"]) == (["gdb", "unit"], ["-k", "unit"])
    assert run_tests.split(["-x"]) == (run_tests.PARTS, ["-x"])
    file = "tests/gdb/test_attach.py"
    assert run_tests.split([file, "-x"]) == (["gdb"], [file, "-x"])  # a file says which part it is of
    assert run_tests.words_for("gdb", [f"{file}::test_x", "-x"]) == [f"{file}::test_x", "-x"]
    assert run_tests.words_for("unit", ["-x"]) == [os.path.join("tests", "unit"), "-x"]
    with pytest.raises(Failed, match="no part or file 'units'"):
        run_tests.split(["units"])


def part(name, status, **counts):
    return run_tests.Part(name, status, 1.0, counts)


def test_the_last_line_counts_all_parts_after_why_tests_were_skipped(capsys):
    results = [
        part("lint", 0, passed=3),
        part("unit", 1, passed=10, failures={"test_a": "x.py:3\nE 1 != 2", "test_b": "no"}, skipped={"no GPU": 1}),
        part("gdb", 0, passed=5, skipped={"no GPU": 2, "no gdb speaks DAP": 4}),
        part("gpu", run_tests.NO_TESTS),
    ]
    run_tests.report(results, {"CPython 3.10": "no such package"}, 61.2)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "18 passed, 2 failed, 7 skipped"
    assert [line.split(None, 1) for line in lines if "no GPU" in line or "DAP" in line] == [
        ["4", "no gdb speaks DAP"],
        ["3", "no GPU"],
    ]
    first = lines.index("failed: test_a")
    assert lines[first + 1 : first + 5] == ["        x.py:3", "        E 1 != 2", "failed: test_b", "        no"]
    assert "        CPython 3.10: no such package" in lines and "gpu      no tests" in lines


def test_a_part_that_ended_before_it_could_count_is_a_failure():
    assert run_tests.closing([part("unit", 2)]) == "0 passed, 1 failed, 0 skipped"
    assert "status 2" in part("unit", 2).line()


def test_what_needs_no_machine_for_itself_runs_on_all_processors():
    assert run_tests.runs("unit", ["-k", "x"], 4, "py") == [["-n", "4", "--dist", "loadfile"]]
    worker = f"7*popen//python=py {run_tests.own_pids.__file__} py"  # each sees its own processes alone
    shared = ["-m", "not alone", "--tx", worker, "--dist", "loadfile", "--no-loadscope-reorder"]
    assert run_tests.runs("gdb", [], 2, "py") == [shared, ["-m", "alone"]]
    for part_name, arguments, workers in (
        ("gdb", [], 1), ("gdb", ["-x"], 2), ("unit", ["--pdb"], 2), ("unit", ["-n2"], 2), ("unit", [], 1), ("engines", [], 4),
    ):  # fmt: skip
        assert run_tests.runs(part_name, arguments, workers, "py") == [[]]


def test_the_runs_of_a_part_count_as_one():
    both = run_tests.joined([part("gdb", 0, passed=3, skipped={"a": 1}), part("gdb", 1, passed=4, failed=2, skipped={"a": 1})])
    assert (both.line(), both.status) == ("gdb      7 passed, 2 failed, 2 skipped in 2 s", 1)
    assert run_tests.joined([part("gdb", run_tests.NO_TESTS), part("gdb", 0, passed=1)]).status == 0
    assert run_tests.joined([part("gdb", 2), part("gdb", 0, passed=1)]).failed == 1
    assert run_tests.joined([part("gpu", run_tests.NO_TESTS)]).line() == "gpu      no tests"


def test_a_test_that_passes_alone_is_listed_one_that_fails_again_failed(capsys):
    first = part("gdb", 1, passed=5, failures={"test_a": "slow", "test_b": "wrong"}, skipped={"no GPU": 1})
    both = run_tests.settled(first, part("gdb", 1, passed=1, failures={"test_b": "wrong again"}))
    assert (both.line(), both.status) == ("gdb      6 passed, 1 failed, 1 skipped in 2 s", 1)
    assert both.failures == {"test_b": "wrong again"} and both.unsteady == {"test_a": "slow"}
    last = run_tests.settled(both, part("gdb", 0, passed=1))  # the second time alone
    assert (last.status, last.failures, last.unsteady) == (0, {}, {"test_a": "slow", "test_b": "wrong again"})
    assert run_tests.settled(first, part("gdb", 0, passed=2)).status == 0
    for lost in (
        part("gdb", 0, passed=1),
        part("gdb", 0, passed=1, skipped={"x": 1}),
        part("gdb", 2),
        part("gdb", run_tests.NO_TESTS),
    ):
        assert run_tests.settled(first, lost) is first  # what did not run is not passed
    run_tests.report([run_tests.joined([both])], {}, 1.0)
    assert "failed beside others, passed alone: test_a" in capsys.readouterr().out


def test_an_interpreter_that_cannot_be_had_is_told_with_the_reason(monkeypatch, tmp_path):
    monkeypatch.setattr(prepare_tests, "ROOT", str(tmp_path))
    monkeypatch.setenv("GDBEXT_CACHE", str(tmp_path))
    (tmp_path / "scripts").mkdir()
    get = tmp_path / "scripts" / "get-pythons"
    get.write_text("#!/bin/sh\necho 'get-pythons: no Debian mirror' >&2\nexit 1\n")
    get.chmod(0o755)
    with pytest.raises(Failed, match="get-pythons: no Debian mirror"):
        prepare_tests.get_python("3.14")


def test_wheels_lie_apart_for_each_python_and_where_the_user_says():
    ours = wheels.wheels_folder((3, 11), {"GDBEXT_DATA": "/d"})
    assert ours.startswith("/d/") and ours != wheels.wheels_folder((3, 12), {"GDBEXT_DATA": "/d"})
    assert wheels.wheels_folder((3, 11), {"XDG_DATA_HOME": "/x"}).startswith("/x/gdbext/")
    line = wheels.pip_command((3, 9), ours, ["numpy"], ["pip"])
    assert (
        line[line.index("--python-version") + 1] == "3.9"
        and "--only-binary=:all:" in line
        and line[line.index("--target") + 1] == ours
    )


def test_missing_wheels_are_known_by_name(tmp_path):
    assert wheels.missing_packages(str(tmp_path / "none")) == list(wheels.PACKAGES)
    (tmp_path / "Pygments-2.19.dist-info").mkdir()
    assert wheels.missing_packages(str(tmp_path)) == ["numpy"]


class Probe(Command):
    """A command of the test."""

    name, operand = "probe", "EXPR"
    options = (Option("slice", "str"), Option("repr"))

    def run(self, session, args):
        raise AssertionError


@pytest.mark.parametrize(
    "words, on, slice_, rest",
    [
        (["-on", "TP0", "d['a b'][-1]"], "TP0", None, "d['a b'][-1]"),
        (["-on", "/tmp/my core", "self.x - 1"], "/tmp/my core", None, "self.x - 1"),
        (["-slice", "0, :", "-repr", "t"], None, "0, :", "t"),
        (["-slice", 'a"b c', "t"], None, 'a"b c', "t"),
        (["x == 'it''s'", "-json"], None, None, "x == 'it''s'"),
    ],
)
def test_words_of_the_shell_reach_the_command_as_they_were(words, on, slice_, rest):
    args = Probe.parse(outside.line_of(Probe, words))
    assert (args.on, args.slice, args.operand_text) == (on, slice_, rest)


@pytest.mark.parametrize(
    "name,line,mend",
    [
        ("llm-launch", "-on TP1", "llm-attach TP1, then llm-launch"),
        ("pynext", "-on", "llm-attach TP0, then pynext"),
        ("pytensor", "-stat -stast x", "did you mean -stats"),
        ("llm-hang", "-q", "it has -wait, -exit-status, -v, -facts, -on, -subprocesses, -unstopped, -json"),
    ],
)
def test_an_option_that_is_not_there_says_what_to_type(name, line, mend):
    with pytest.raises(UsageError) as e:
        table.load(name).parse(line)
    assert mend in str(e.value) and f"see: help {name}" in str(e.value)


def test_a_value_with_both_quotes_is_refused():
    with pytest.raises(UsageError, match="both kinds"):
        outside.line_of(Probe, ["-on", "'a \"b"])


def test_errors_are_json_where_json_was_asked_for():
    import json

    status, out, err = outside.failure("probe", GdbextError("no\nway \x1b[31m"), True)
    assert status == 1 and not err and json.loads(out) == {"schema": "probe/1", "partial": [], "error": "no way \\x1b[31m"}
    assert "\n" not in out and "\x1b" not in out
    status, out, err = outside.failure("probe", GdbextError("no way"), False)
    assert (status, out, err) == (1, "", "probe: no way")


def test_every_command_of_the_table_is_there():
    for name in table.names():
        assert table.load(name).name == name


@pytest.mark.parametrize(
    "facts, error, status, mend",
    [
        (dict(scope=0, capabilities=0, seccomp=0, container=False, uid=1000), 0, "ok", ""),
        (dict(scope=1, capabilities=0, seccomp=0, container=False, uid=1000), 1, "failed", "ptrace_scope=0"),
        (dict(scope=1, capabilities=0, seccomp=2, container=True, uid=0), 1, "failed", "SYS_PTRACE"),
        (dict(scope=0, capabilities=0, seccomp=2, container=True, uid=0), 1, "failed", "SYS_PTRACE"),
        (dict(scope=3, capabilities=1 << doctor.SYS_PTRACE, seccomp=0, container=False, uid=0), 1, "failed", "reboot"),
        (dict(scope=2, capabilities=0, seccomp=0, container=False, uid=1000), 1, "failed", "ptrace_scope=0"),
    ],
)
def test_the_doctor_names_what_stands_in_the_way_of_attaching(facts, error, status, mend):
    check = doctor.check_trace(facts, error)
    assert check.status == status and mend in check.mend


def test_the_doctor_knows_the_layouts_that_are_there():
    known = doctor.layouts()
    assert "3.11" in known["cpython"] and known["torch"]
    assert known["cpython"].index("3.9") < known["cpython"].index("3.10")
    assert doctor.check_layouts({"cpython": [], "torch": known["torch"]}).status == "failed"


def test_a_failed_engine_is_told_by_its_first_errors_and_its_end(tmp_path):
    log = tmp_path / "log"
    log.write_text("start\nImportError('libnuma.so.1')\n" + "noise\n" * 50 + "RuntimeError: see root cause above\nend\n")
    said = why_it_failed(str(log), 3).split("\n")
    assert [line.strip() for line in said] == [
        "ImportError('libnuma.so.1')",
        "...",
        "noise",
        "RuntimeError: see root cause above",
        "end",
    ]
