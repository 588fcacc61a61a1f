"""llm-attach, llm-detach, llm-continue, llm-apply in a real gdb on running processes."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
from harness.gdb_run import INIT
from harness.heartbeats import ROUNDS, eventually, heartbeats, stop
from harness.subjects import spawned, unlimited_core

from gdbext.access import ptrace
from gdbext.control import attach_checks
from gdbext.errors import GdbextError


@pytest.fixture
def one(tmp_path):
    with heartbeats(tmp_path, 1) as found:
        yield found[0]


@pytest.fixture
def two(tmp_path):
    with heartbeats(tmp_path, 2) as found:
        yield found


def longest_gap(one):
    """Seconds; what the subject's last thread measured itself."""
    with open(one.file, "rb") as f:
        return int.from_bytes(f.read()[8 * one.threads :][:8], "little") / 1e6


@pytest.mark.alone
def test_attach_stops_the_process_and_detach_reports_the_pause(gdb, one):
    """Alone, for the pause that is said is compared with the one that the process saw."""
    run = gdb([f"llm-attach -json {one.pid}", f"shell grep State: /proc/{one.pid}/status", "shell sleep 0.5", "llm-detach -json"])
    answer = run.json(0)
    assert answer["schema"] == "llm-attach/1" and answer["partial"] == []
    (attached,) = answer["attached"]
    assert attached["pid"] == one.pid and attached["inferior"] == 1 and 0 < attached["pause"]
    assert "tracing stop" in run.outputs[1]
    (pause,) = run.json(3)["pauses"]
    assert pause["pid"] == one.pid
    assert one.runs()
    seen = longest_gap(one)
    assert pause["seconds"] >= 0.5
    assert abs(seen - pause["seconds"]) < 0.3 + 0.5 * seen, (seen, pause)


def test_several_processes_are_named_in_one_line(gdb, two):
    a, b = two
    run = gdb(
        [
            f"llm-attach -json {a.pid},{b.pid}",
            f"llm-apply {b.pid},{a.pid} python print(gdb.selected_inferior().pid)",
            f"llm-detach -json {a.pid} {b.pid}",
            f"llm-attach {a.pid},4194303",
            "info inferiors",
        ]
    )
    assert [one["pid"] for one in run.json(0)["attached"]] == [a.pid, b.pid]
    assert all(re.search(rf"^ *{one.pid}$", run.outputs[1], re.M) for one in two)
    assert [one["pid"] for one in run.json(2)["detached"]] == [a.pid, b.pid]
    assert "4194303 is no process here" in run.outputs[3] and str(a.pid) not in run.outputs[4]
    assert a.runs() and b.runs()


def test_python_and_native_stack_of_the_attached_process_can_be_read(gdb, one):
    run = gdb([f"llm-attach {one.pid}", "pybt", "bt"])
    assert re.search(r"#0 +beat .*heartbeat.py", run.outputs[1]) and "#1  main" in run.outputs[1]
    frames = re.findall(r"^#\d+ .*", run.outputs[2], re.M)
    assert "main" in frames[-1] + frames[-2] + frames[-3], run.outputs[2]  # the walk reached the program's beginning
    assert not re.search(r"^#\d+ +0x0*[0-9a-f]{1,4} in \?\?", run.outputs[2], re.M)


def test_a_gdb_that_fails_inside_leaves_no_core_of_itself(gdb_path, two, tmp_path):
    words = [
        gdb_path,
        "-nx",
        "-q",
        "-batch",
        "-iex",
        "set auto-load off",
        "-ex",
        f"source {INIT}",
        "-ex",
        f"llm-attach {two[0].pid}",
    ]
    done = subprocess.run(
        [*words, "-ex", "maintenance internal-error test"],
        cwd=tmp_path,
        preexec_fn=unlimited_core,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert "internal to GDB has been detected" in done.stdout
    assert not [name for name in os.listdir(tmp_path) if name.startswith("core")]


def test_settings_are_as_before_after_the_last_detach(gdb, two):
    shows = [
        "show auto-solib-add",
        "show breakpoint pending",
        "show confirm",
        "show pagination",
        "show print thread-events",
        "show schedule-multiple",
        "maintenance show internal-error corefile",
    ]
    a, b = two
    run = gdb(
        [
            *shows,
            f"llm-attach {a.pid}",
            f"llm-attach {b.pid}",
            *shows,
            f"llm-detach {a.pid}",
            shows[0],
            "llm-detach",
            *shows,
            "info inferiors",
        ]
    )
    before, during, after = run.outputs[:7], run.outputs[9:16], run.outputs[19:26]
    assert before == after
    assert (
        before[2:6] == during[2:6] and '"ask"' in before[6] and '"no"' in during[6] and "off" in during[0] and "on" in before[0]
    )
    assert "auto" in before[1] and "is on" in during[1]
    assert run.outputs[17] == during[0]  # one of them is still held
    assert "process" not in run.outputs[26]  # no inferior is left behind
    assert a.runs() and b.runs()


def test_a_setting_that_the_user_had_comes_back(gdb, one):
    run = gdb(["set auto-solib-add off", f"llm-attach {one.pid}", "llm-detach", "show auto-solib-add"])
    assert "off" in run.outputs[-1]


def test_a_process_that_was_stopped_stays_stopped(gdb, one):
    stop(one)
    run = gdb([f"llm-attach -json {one.pid}", "llm-detach"])
    assert run.json(0)["attached"][0]["was_stopped"] is True
    assert "as it was before" in run.outputs[1]
    assert one.stands()
    os.kill(one.pid, signal.SIGCONT)
    assert one.runs()


def test_a_stopped_process_that_the_user_continued_runs_after_the_detach(gdb, one):
    stop(one)
    gdb([f"llm-attach {one.pid}", "llm-continue &", "python import time; time.sleep(0.3)", "llm-detach"])
    assert one.runs()


def test_continue_resumes_all_together_and_gives_the_setting_back(gdb, two):
    a, b = two
    run = gdb(
        [
            f"llm-attach {a.pid}",
            f"llm-attach {b.pid}",
            "llm-continue -json &",
            f"python import time; time.sleep(0.5); print(open({a.file!r}, 'rb').read(8) != b'' )",
            f"shell grep -h State: /proc/{a.pid}/status /proc/{b.pid}/status",
            "llm-detach",
            "show schedule-multiple",
        ]
    )
    assert [c["pid"] for c in run.json(2)["continued"]] == [a.pid, b.pid]
    assert len(re.findall(r"State:\s+[SRD] ", run.outputs[4])) == 2
    assert "off" in run.outputs[6]
    assert a.runs() and b.runs()


def test_gdb_ends_well_after_a_stop(gdb, one):
    run = gdb([f"llm-attach {one.pid}", "tbreak clock_nanosleep", "llm-continue", "show schedule-multiple", "llm-detach"])
    assert "clock_nanosleep" in run.outputs[2] and "stopped again" in run.outputs[2] and "off" in run.outputs[3]
    assert run.status == 0 and "Fatal" not in run.text, run.text
    assert one.runs()


def test_within_the_time_any_other_stop_is_told_and_its_end_in_words(gdb, one):
    run = gdb([f"llm-attach {one.pid}", "tbreak clock_nanosleep", "llm-continue -for 90", "llm-continue -for 0.5", "llm-detach"])
    assert "clock_nanosleep" in run.outputs[2] and "reakpoint 1" in run.outputs[2], run.text
    assert "stopped again" in run.outputs[2] and "the time is over" not in run.outputs[2], run.text
    assert run.outputs[3].endswith("(the time is over: 0.5 s)") and run.outputs[3].count("\n") == 0, run.text
    assert "SIGWINCH" not in run.text and one.runs()


@pytest.mark.parametrize("end", [["llm-detach"], []])
def test_a_second_interrupt_does_not_reach_the_process(gdb, one, end):
    """Stopped by Ctrl-C, another SIGINT still on its way to the process: it would end it once gdb lets go, by llm-detach or at
    gdb's own end."""
    again = "python import os, signal; os.kill(%d, signal.SIGINT)" % one.pid
    timer = f"python import subprocess; subprocess.Popen(['sh', '-c', 'sleep 0.5; kill -INT {one.pid}'])"
    run = gdb([f"llm-attach {one.pid}", timer, "llm-continue", again, *end])
    assert "SIGINT" in run.outputs[2] and run.status == 0, run.text
    assert one.runs()


def test_a_breakpoint_at_an_address_is_planted_in_its_own_process_only(gdb, two):
    a, b = two
    made = (
        "python from gdbext.control import launch_breakpoints; at = int(gdb.parse_and_eval('(unsigned long)&clock_nanosleep')); "
        "both = [launch_breakpoints.InternalBreakpoint(at, lambda: None), "
        "launch_breakpoints.LaunchBreakpoint(None, '', at + 1, '')]; both[1].open(False)"
    )
    show = (
        "python print([[p.thread_groups for p in getattr(b, 'locations', []) if p.enabled] "
        "for b in both], hasattr(both[0], 'locations'))"
    )
    run = gdb(
        [
            f"llm-attach {a.pid}",
            made,
            show,
            f"llm-attach -libraries all {b.pid}",
            show,
            f"llm-apply {b.pid} sharedlibrary",
            show,
            "llm-detach",
        ]
    )
    if run.outputs[2].endswith("False"):
        pytest.skip("this gdb tells of no locations")
    assert "stopped" in run.outputs[3], run.text
    assert run.outputs[2] == run.outputs[4] == run.outputs[6] == "[[[1]], []] True", run.text
    assert a.runs() and b.runs()


def test_a_subset_cannot_be_continued_and_the_message_says_what_can(gdb, tmp_path):
    with heartbeats(tmp_path, 3) as found:
        pids = [p.pid for p in found]
        resume = f"python gdb.execute('inferior 1'); from gdbext.control import resuming; resuming.resume({pids[:2]})"
        run = gdb([f"llm-attach {p}" for p in pids] + [resume])
        assert "llm-continue all" in run.outputs[-1]
        assert all(p.runs() for p in found)


def test_apply_labels_the_output_shows_errors_and_keeps_the_selection(gdb, two):
    a, b = two
    where = "python print(gdb.selected_inferior().num, gdb.selected_thread().num, hex(gdb.selected_frame().pc()))"
    run = gdb(
        [
            f"llm-attach {a.pid}",
            f"llm-attach {b.pid}",
            "inferior 1",
            "thread 1.2",
            "up",
            where,
            "llm-apply -json all pybt",
            "llm-apply all nonsense",
            where,
            f"llm-apply {b.pid} thread 2",
            where,
        ]
    )
    results = run.json(6)["results"]
    assert [r["pid"] for r in results] == [a.pid, b.pid] and all("heartbeat.py" in r["output"] for r in results)
    assert run.outputs[7].count("Undefined command") == 2 and "partial" in run.outputs[7]
    assert run.outputs[5] == run.outputs[8] == run.outputs[10].splitlines()[0]  # at its end gdb tells of detaching


def test_attaching_while_another_is_attached_does_not_resume_that(gdb, two):
    a, b = two
    run = gdb(
        [
            f"llm-attach {a.pid}",
            f"shell od -A n -t u8 -N 8 {a.file}",
            f"llm-attach {b.pid}",
            f"llm-detach {b.pid}",
            "shell sleep 0.1",
            f"shell od -A n -t u8 -N 8 {a.file}",
            "llm-detach",
        ]
    )
    assert run.outputs[1].strip() == run.outputs[5].strip() != ""
    assert a.runs() and b.runs()


# ---- what goes wrong -------------------------------------------------------------------------------------------------
def one_line(output):
    assert len(output.strip().splitlines()) == 1, output
    assert "Traceback" not in output and "Python Exception" not in output
    return output


def test_a_gone_pid_a_zombie_and_gdb_itself_are_refused_in_one_line(gdb):
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    eventually(lambda: (ptrace.status(child.pid) or {"state": "Z"})["state"] == "Z", "the zombie")
    free = next(p for p in range(4_000_000, 4_194_000) if not os.path.exists(f"/proc/{p}"))
    myself = "python import os; gdb.execute('llm-attach %d' % os.getpid())"
    try:
        run = gdb([f"llm-attach {free}", f"llm-attach {child.pid}", myself, "llm-detach", "llm-continue", "show auto-solib-add"])
    finally:
        child.wait()
    assert str(free) in one_line(run.outputs[0])
    assert "zombie" in one_line(run.outputs[1])
    assert "this gdb" in run.outputs[2]
    assert "no process is attached" in one_line(run.outputs[3]) and "no process is attached" in one_line(run.outputs[4])
    assert "on" in run.outputs[5]


def test_a_process_that_another_traces_is_refused_and_the_tracer_named(gdb, one):
    with ptrace.Stopped(one.pid):
        run = gdb([f"llm-attach {one.pid}"])
    assert f"traced by process {os.getpid()}" in one_line(run.outputs[0])
    assert one.runs()


LOADED_FROM_MEMORY = """
import ctypes, os, sys, time, zlib
fd = os.memfd_create("made")
os.write(fd, open(sys.argv[1], "rb").read())
os.dup2(fd, 5)
ctypes.CDLL("/proc/self/fd/5")
print("up", flush=True)
time.sleep(600)
"""


def test_a_library_that_is_another_file_in_each_process_is_not_opened(gdb, tmp_path):
    """One without a name on the disk, loaded by way of /proc/self/fd: descriptor 5 of gdb is a pipe, which it would read for
    ever. The process is well, and what needs no gdb reads it."""
    library = next(path for path in open("/proc/self/maps").read().split() if "/libc.so" in path or "/libc-" in path)
    with spawned([sys.executable, "-c", LOADED_FROM_MEMORY, library], ready="up") as one:
        run = gdb([f"llm-attach {one.pid}", f"llm-attach -force {one.pid}", f"pybt -on {one.pid}", f"llm-stacks {one.pid}"])
        for text in run.outputs[:2]:
            assert "'/proc/self/fd/5'" in text and "another file in each process" in text and "\n" not in text, text
        assert "<module> (<string>:8)" in run.outputs[2] and "<module> (<string>:8)" in run.outputs[3]
        assert one.poll() is None and not ptrace.is_stopped(one.pid)


OWN_FILE = "another file in each process"


@pytest.mark.parametrize(
    "path, then, said",
    [
        ("/proc/./self//fd/5", "", OWN_FILE),
        ("//proc/self/fd/5", "", OWN_FILE),
        ("/proc/thread-self/fd/5", "", OWN_FILE),
        ("/dev/stdin", "", OWN_FILE),
        ("{link}", "", OWN_FILE),
        ("/proc/{pid}/fd/5", "os.dup2(os.pipe()[0], 5)", "a FIFO"),
        ("/proc/{pid}/fd/5", "", None),
    ],
)
def test_a_library_of_a_descriptor_is_known_by_whatever_name(path, then, said, tmp_path):
    """Other spellings and links of /proc/self/fd; and the process's own descriptors by its pid, which gdb may open where they
    are files."""
    library = next(path for path in open("/proc/self/maps").read().split() if "/libc.so" in path or "/libc-" in path)
    link = tmp_path / "lib.so"
    link.symlink_to("/dev/fd/5")
    name = path.replace("{link}", str(link)).replace("{pid}", "%d' % os.getpid() + '")
    code = LOADED_FROM_MEMORY.replace('ctypes.CDLL("/proc/self/fd/5")', f"ctypes.CDLL('{name}')\n{then}")
    with spawned(
        [sys.executable, "-c", code.replace("os.dup2(fd, 5)", "os.dup2(fd, 5); os.dup2(fd, 0)"), library], ready="up"
    ) as one:
        if said is None:
            assert attach_checks.check(one.pid) is False
            return
        with pytest.raises(GdbextError, match=said):
            attach_checks.check(one.pid)


def test_one_bad_process_among_several_stops_none(gdb, one):
    code = (
        f"python from gdbext.control import attach\ntry:\n attach.attach([({one.pid}, 'a'), (4194303, 'b')])\n"
        "except Exception as e:\n print(type(e).__name__, e)"
    )
    run = gdb([code, "info inferiors", "show auto-solib-add"])
    assert "NotFoundError" in run.outputs[0]
    assert str(one.pid) not in run.outputs[1] and "on" in run.outputs[2]
    assert one.runs()


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root, to become nobody")
def test_without_permission_the_line_says_what_to_do(gdb_path, root, one, tmp_path):
    script = tmp_path / "attach.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {root!r})\nfrom gdbext.control import attach\nfrom gdbext.errors import GdbextError\n"
        f"try:\n    attach.attach([({one.pid}, '')])\nexcept GdbextError as e:\n    print('refused:', e)\n"
    )
    os.chmod(tmp_path, 0o755)
    for folder in script.parents:
        if not os.stat(folder).st_mode & 1:
            os.chmod(folder, os.stat(folder).st_mode | 0o011)
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]
    if subprocess.run(
        [*nobody, gdb_path, "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
    ).returncode:
        pytest.skip(f"nobody may not run {gdb_path}")
    done = subprocess.run(
        [*nobody, gdb_path, "-nx", "-batch", "-x", str(script)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "HOME": str(tmp_path)},
        cwd="/",
        timeout=60,
    )
    (line,) = [x for x in done.stdout.splitlines() if x.startswith("refused:")]
    assert "no permission to attach" in line and ("sudo" in line or "sysctl" in line or "SYS_PTRACE" in line)
    assert one.runs()


INTERRUPTED = """
import gdb, sys, time
sys.path.insert(0, {root!r})
from gdbext.control import attach
print("begin", flush=True)
try:
    attach.attach([(pid, "") for pid in {pids!r}], "main")
    print("whole", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
except Exception as e:
    print("error", type(e).__name__, e, flush=True)
print("attached", len(attach.attached()), gdb.parameter("auto-solib-add"), flush=True)
sys.stdin.readline()
"""


def test_ctrl_c_in_the_middle_of_attaching_leaves_all_running(gdb_path, root, tmp_path):
    with heartbeats(tmp_path, 3) as found:
        stop(found[2])
        script = tmp_path / "attach.py"
        script.write_text(INTERRUPTED.format(root=root, pids=[p.pid for p in found]))
        interrupted = 0
        for _ in range(ROUNDS):
            command = [gdb_path, "-nx", "-q", "-batch", "-x", str(script)]
            gdb = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            lines = []
            for line in gdb.stdout:
                lines.append(line.strip())
                if lines[-1] == "begin":
                    time.sleep(random.random() * 0.4)
                    gdb.send_signal(signal.SIGINT)
                if lines[-1].startswith("attached"):
                    break
            if "whole" not in lines:
                interrupted += 1
                assert lines[-1] == "attached 0 True", lines
                assert found[0].runs() and found[1].runs() and found[2].stands(), lines
            gdb.stdin.close()
            gdb.wait()
            gdb.stdout.close()
            assert found[0].runs() and found[1].runs() and found[2].stands(), lines
        assert interrupted, "no round was interrupted: the test shows nothing"


def test_symbols_of_one_library_are_read_when_asked_for(gdb, one):
    run = gdb(
        [
            f"llm-attach -libraries none {one.pid}",
            "llm-symbols -json libm.so",
            "llm-symbols -json",
            "llm-symbols nosuch",
            "info line fmod",
        ]
    )
    (libm,) = run.json(1)["libraries"]
    assert libm["read"] and "libm" in libm["file"] and run.json(1)["partial"] == []
    assert {"file": libm["file"], "read": True} in run.json(2)["libraries"] and not all(
        r["read"] for r in run.json(2)["libraries"]
    )
    assert "no library of the process" in run.outputs[3] and "fmod" in run.outputs[4]


def test_symbols_of_another_process_than_the_selected_one(gdb, two):
    selected, other = two
    run = gdb(
        [
            f"llm-attach -libraries none {selected.pid} {other.pid}",
            "inferior 1",
            f"llm-symbols -json -on {other.pid} libm.so",
            "python print(gdb.selected_inferior().num)",
            f"llm-symbols -on {os.getpid()} libm.so",
            "python print(*[i.pid for i in gdb.inferiors() if any('libm.so' in o.filename for o in i.progspace.objfiles())])",
        ]
    )
    (libm,) = run.json(2)["libraries"]
    assert libm["read"] and run.outputs[3].strip() == "1"
    assert "is not attached: llm-attach" in run.outputs[4]
    assert run.outputs[5].split() == [str(other.pid)]
