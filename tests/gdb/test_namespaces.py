"""A real process in every kind of namespace, looked at with and without rights: the right answer, or the one line that mends it.
docs/pods.md has the same rows."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile

import pytest
from harness.gdb_run import ROOT
from harness.subjects import spawned

PYTHON = shutil.which("python3", path="/usr/bin:/bin")
SUBJECT = """
import ctypes, json, os, sys, time
wanted = {"answer": [1, 2, 3]}
def waiting_here():
    if "hidden" in sys.argv:
        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
    print(json.dumps({"pid": os.getpid()}), flush=True)
    time.sleep(600)
waiting_here()
"""
# ptrace (101 on x86-64, 117 elsewhere) and process_vm_readv (310, 270) are refused with EPERM.
FILTER = """
import ctypes, os, struct, sys
refused = {"x86_64": (101, 310)}.get(os.uname().machine, (117, 270))
one = lambda code, yes, no, k: struct.pack("HBBI", code, yes, no, k)
text = one(0x20, 0, 0, 0) + one(0x15, 1, 0, refused[0]) + one(0x15, 0, 1, refused[1])
text += one(6, 0, 0, 0x50001) + one(6, 0, 0, 0x7FFF0000)
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
assert not libc.prctl(22, 2, ctypes.byref(Program(len(text) // 8, text)), 0, 0)  # PR_SET_SECCOMP
os.execv(sys.argv[1], sys.argv[1:])
"""
USER = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
PID = ["--pid", "--fork", "--kill-child", "--mount-proc"]
FILES = 'mount -t tmpfs none /mnt && cp "$0" /mnt/app.py && cp "$(readlink -f "$1")" /mnt/python && exec /mnt/python /mnt/app.py'
PLAIN, OWN = (
    ["{python}", "{subject}"],
    ["sh", "-c", FILES, "{subject}", "{python}"],
)  # OWN: files that only this mount namespace has
NONE, RIGHT, BOTH = "no namespace of its own", "right", "right, with both pids"
# (where the engine is, who looks, the answer): (how it is started, how the look is started)
CASES = {
    (NONE, "root", RIGHT): (PLAIN, []),
    ("a mount namespace, with files that only it has", "root", RIGHT): (["unshare", "--mount", *OWN], []),
    ("a pid namespace", "root", BOTH): (["unshare", *PID, *PLAIN], []),
    ("a pid namespace", "a process in it", "right, with the pids there"): (
        ["unshare", *PID, *PLAIN],
        ["nsenter", "-t", "{pid}", "-m", "-p"],
    ),
    ("a user namespace", "root", RIGHT): (["unshare", "--user", "--map-root-user", *PLAIN], []),
    ("mount and pid namespaces", "root", BOTH): (["unshare", "--mount", *PID, *OWN], []),
    ("mount, pid and user namespaces", "root", BOTH): (["unshare", "--user", "--map-root-user", "--mount", *PID, *OWN], []),
    ("mount, pid and user namespaces of a plain user", "the same user", BOTH): (
        [*USER, "unshare", "--user", "--map-root-user", "--mount", *PID, *OWN],
        USER,
    ),
    ("a user namespace of a plain user", "the same user", RIGHT): ([*USER, "unshare", "--user", "--map-root-user", *PLAIN], USER),
    (NONE + ", of a plain user", "root", RIGHT): (USER + PLAIN, []),
    (NONE + ", of a plain user", "the same user", RIGHT): (USER + PLAIN, USER),
    (NONE + ", not dumpable", "root", RIGHT): ([*PLAIN, "hidden"], []),
    (NONE + ", of a plain user, not dumpable", "the same user", "it hides its memory from its own user"): (
        [*USER, *PLAIN, "hidden"],
        USER,
    ),
    (NONE + ", of root", "a plain user", "it belongs to user 0"): (PLAIN, USER),
    (NONE + ", of a plain user", "the same user in a user namespace", "this is a user namespace of its own"): (
        USER + PLAIN,
        [*USER, "unshare", "--user"],
    ),
    (NONE, "root under a seccomp filter without ptrace", "a seccomp filter forbids it"): (
        PLAIN,
        ["{python}", "-c", FILTER],
    ),
    (NONE + ", of a plain user", "root without SYS_PTRACE", "in a container start it with --cap-add=SYS_PTRACE"): (
        USER + PLAIN,
        ["setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-all"],
    ),
}


@pytest.fixture(scope="module")
def place():
    """A folder that everybody may read, with the pack and the subject."""
    if os.geteuid() != 0:
        pytest.skip("needs root, which makes the namespaces and the other user")
    lacking = [name for name in ("unshare", "nsenter", "setpriv") if not shutil.which(name)]
    if lacking or not PYTHON:
        pytest.skip(f"needs {', '.join(lacking) or 'a python3 in /usr/bin'}")
    if subprocess.run(["unshare", "-Urmpf", "--mount-proc", "true"], capture_output=True).returncode:
        pytest.skip("this machine lets nobody make namespaces")
    with tempfile.TemporaryDirectory(prefix="gdbext-namespaces-", dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        shutil.copytree(
            os.path.join(ROOT, "gdbext"), os.path.join(folder, "gdbext"), ignore=shutil.ignore_patterns("__pycache__")
        )
        with open(os.path.join(folder, "subject.py"), "w") as f:
            f.write(SUBJECT)
        subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
        clean = {"PATH": os.environ["PATH"]}
        subprocess.run([PYTHON, "-m", "compileall", "-q", os.path.join(folder, "gdbext")], check=True, env=clean)
        yield folder


def innermost(pid):
    """The last descendant of a process: past unshare, setpriv and the shell."""
    while True:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            below = f.read().split()
        if not below:
            return pid
        pid = int(below[0])


@contextlib.contextmanager
def started(words, place):
    """-> (pid here, pid in its own namespace)"""
    told = [
        word.format(python=PYTHON, subject=os.path.join(place, "subject.py")) if word.startswith("{") else word for word in words
    ]
    with spawned(told, ready="{", stdin=subprocess.DEVNULL, start_new_session=True) as process:
        yield innermost(process.pid), json.loads(process.said)["pid"]


def ask(how, place, pid, *words):
    """-> (exit status, answer) of a command, by somebody with `how`'s rights."""
    how = [word.format(python=PYTHON, pid=pid) if word.startswith("{") else word for word in how]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": place}
    done = subprocess.run(
        [*how, PYTHON, "-m", "gdbext", *words, "--json"], cwd="/", env=env, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.startswith("{") and not done.stderr, done.stdout + done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("case", CASES, ids=lambda case: re.sub(r"\W+", "-", "-".join(case[:2])))
@pytest.mark.drawn(4)
def test_the_right_answer_or_the_line_that_mends_it(place, case):
    answer, (words, how) = case[2], CASES[case]
    with started(words, place) as (pid, inner):
        assert (pid != inner) is ("pid namespace" in case[0] or "mount and pid" in case[0] or "mount, pid" in case[0])
        named = inner if "there" in answer else pid
        status, said = ask(how, place, pid, "llm-stacks", str(named))
        if not answer.startswith(RIGHT):
            if "error" in said:
                assert status == 1 and answer in said["error"], said
            else:  # where all its threads slept nobody had to be stopped
                assert status == 3 and said["partial"] and not any(pause["seconds"] for pause in said["pauses"]), said
            return
        (group,) = said["groups"]
        frames = [(f["function"], os.path.basename(f["file"])) for f in group["frames"] if f["kind"] == "python"]
        file = "app.py" if "files" in case[0] or "mount" in case[0] else "subject.py"
        assert frames[0] == ("waiting_here", file) and any("libc" in (f["library"] or "") for f in group["frames"]), said
        (member,) = group["members"]
        assert member["pid"] == named and member.get("ns_pid") == (inner if "both" in answer else None)
        assert ask(how, place, pid, "pyprint", "-on", str(named), "wanted")[1]["repr"] == "{'answer': [1, 2, 3]}"


SPINS = """
import ctypes, json, os, threading, time
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
print(json.dumps({"pid": os.getpid()}), flush=True)
while True:
    pass
"""


def test_a_process_that_may_not_be_traced_is_told_by_its_clocks(place):
    with spawned([*USER, PYTHON, "-c", SPINS], ready="{", stdin=subprocess.DEVNULL, preexec_fn=lambda: os.nice(10)) as process:
        status, said = ask(USER, place, process.pid, "llm-hang", str(process.pid))
    assert status == 3 and said["verdict"] == "unknown" and "hides its memory" in said["failed"][0]["reason"]
    (one,) = said["untraced"]
    main, other = one["threads"]
    assert (one["pid"], one["state"], one["http"]) == (process.pid, "R", None)
    assert (main["tid"], main["state"]) == (process.pid, "R") and main["cpu"] > 0 and main["wchan"] is None
    assert (other["state"], other["cpu"], other["woke"]) == ("S", 0, 0)


def test_the_page_has_these_rows():
    with open(os.path.join(ROOT, "docs", "pods.md"), encoding="utf-8") as f:
        table = f.read().partition("| the engine is in | user of gdbext | answer |\n")[2]
    rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in table.splitlines()[1:] if line.startswith("|")]
    assert rows == list(CASES) and len(rows) >= 12
