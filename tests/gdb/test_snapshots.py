"""llm-snapshot: what a snapshot answers is what the live process answers; the file is private, whole or not there, and leaves the
disk room."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from harness.gdb_run import run_gdb
from harness.heartbeats import asleep, eventually, heartbeats
from harness.subjects import SUBJECTS, spawned

from gdbext.access import collector, room
from gdbext.access.snapshot import APART, CoreFileTarget
from gdbext.commands import table
from gdbext.cpython.runtime import open_runtime
from gdbext.errors import FaultError, GdbextError
from gdbext.session.session import Session

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def answer(line):
    """The JSON of a command run in this process."""
    name, _, rest = line.partition(" ")
    command = table.load(name)
    return json.loads(command().answer(Session(), command.parse(rest)).json(name))


@pytest.fixture(scope="module")
def subject():
    with spawned([sys.executable, os.path.join(SUBJECTS, "commands.py")], ready="{") as child:
        asleep(child.pid)
        yield child.pid, json.loads(child.said)


LOOK = [
    "pybt -all -locals -json",
    "llm-bt -all -json",
    "llm-bt -all -raw -json",
    "pyprint items -json",
    "pyprint items[1].name -json",
    "pyprint threading:main_thread -json",
    "pyprint sys:flags.optimize -json",
    "pyprint json:dumps.__defaults__ -json",
    "pylocals -json",
]


def plain(said):
    data = json.loads(json.dumps(said))
    for thread in data.get("threads", ()):
        for key in ("state", "label", "name"):
            thread.pop(key, None)
    data.pop("partial")
    return data


def test_a_snapshot_answers_what_the_live_process_answers(subject, gdb_path, tmp_path):
    pid, truth = subject
    file = str(tmp_path / "snapshot")
    said = answer(f"llm-snapshot {pid} -o {file} -json")
    assert (
        said["snapshots"][0]["file"] == file and said["snapshots"][0]["bytes"] == os.path.getsize(file) and said["failed"] == []
    )
    assert said["pauses"] == [{"pid": pid, "seconds": 0.0, "woken": 0}], "all its threads sleep, and are left asleep"
    live = run_gdb(gdb_path, LOOK, ["-p", str(pid)], before=["set auto-solib-add off"])
    dead = run_gdb(gdb_path, LOOK, ["-c", file], before=["set auto-solib-add off"])
    on = [answer(line.replace(" ", f" -on {file} ", 1)) for line in LOOK]
    for index, command in enumerate(LOOK):
        assert plain(live.json(index)) == plain(dead.json(index)), command
        assert plain(live.json(index)) == plain(on[index]), command
    assert on[3]["repr"] == truth["items"]
    main = next(th for th in on[0]["threads"] if th["tid"] == pid)
    assert [[f["function"], f["line"]] for f in main["frames"]] == truth["main"]


def test_the_file_is_private_and_takes_no_disk_for_zeros(tmp_path):
    code = (
        "import time, mmap; m = mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\nm[:] = bytes(64 "
        "<< 20); m[0] = 7\nprint('up', flush=True); time.sleep(1000)"
    )
    with spawned([sys.executable, "-c", code], ready="") as child:
        os.umask(os.umask(0))
        said = answer(f"llm-snapshot {child.pid} -heap -o {tmp_path / 'shot'} -json")["snapshots"][0]
        status = os.stat(said["file"])
        assert status.st_mode & 0o777 == 0o600 and status.st_size > 64 << 20 and said["disk_bytes"] < 32 << 20


def test_big_memory_stays_out_unless_asked_for(torch_python, tmp_path):
    code = (
        "import torch, time\nt = torch.arange(160 << 20, dtype=torch.uint8)\nsmall = torch.arange(5)\nname = 'x' * 50\n"
        "def wait():\n    print('up', flush=True); time.sleep(1000)\nwait()"
    )
    with spawned([torch_python, "-c", code], ready="") as child:
        asleep(child.pid)
        files = [str(tmp_path / n) for n in "abc"]
        trimmed = answer(f"llm-snapshot {child.pid} -max-bytes {150 << 20} -o {files[0]} -json")
        asked = answer(f"llm-snapshot {child.pid} -max-bytes {150 << 20} -with t -o {files[1]} -json")
        wrong = answer(f"llm-snapshot {child.pid} -heap -with zork -o {files[2]} -json")
        assert any("left out" in reason for reason in trimmed["partial"]) and any("zork" in reason for reason in wrong["partial"])
        assert asked["snapshots"][0]["bytes"] - trimmed["snapshots"][0]["bytes"] > 150 << 20
        for file, there in zip(files, (False, True, True)):
            tensor = answer(f"pytensor -on {file} -json __main__:t")
            data, target = int(tensor["data_ptr"], 16), CoreFileTarget(file)
            assert tensor["shape"] == [160 << 20] and answer(f"pyprint -on {file} -json __main__:name")["repr"] == repr("x" * 50)
            if there:
                assert target.read(data + 1000, 300) == bytes(i & 255 for i in range(1000, 1300))
                assert target.read(data + (100 << 20), 8) == bytes(range(8))
            else:
                with pytest.raises(FaultError):
                    target.read(data + (100 << 20), 8)


def test_the_kv_cache_in_a_snapshot_is_that_of_the_live_process(torch_python, tmp_path):
    if subprocess.run(
        [torch_python, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('vllm') is None)"], check=False
    ).returncode:
        pytest.skip("the environment with torch has no vLLM: run scripts/test engines, which makes one")
    words = [torch_python, os.path.join(SUBJECTS, "blockpools.py"), "100"]
    with spawned(words, ready='{"pid"', stderr=subprocess.DEVNULL) as child:
        file = str(tmp_path / "shot")
        said = answer(f"llm-snapshot {child.pid} -heap -o {file} -json")
        assert said["pauses"][0]["seconds"] < 60
        for line in (
            "llm-kv -pool pools['used']",
            "llm-kv check -pool pools['leak']",
            "llm-kv block 5 -pool pools['used']",
            "llm-kv check -pool pools['size10000']",
        ):
            words = line.split(" ", 1)
            live, dead = (answer(f"{words[0]} -on {on} -json {words[1]}") for on in (child.pid, file))
            live.pop("partial"), dead.pop("partial")
            assert live == dead, line


def test_several_processes_and_one_that_is_gone(tmp_path):
    with heartbeats(tmp_path, 2) as (one, two):
        zombie = subprocess.Popen([sys.executable, "-c", ""])
        eventually(lambda: open(f"/proc/{zombie.pid}/stat").read().split()[2] == "Z", "the zombie")
        said = answer(f"llm-snapshot {one.pid} {two.pid} {zombie.pid} -o {tmp_path / 'shots'} -max-bytes 0 -json")
        assert {s["pid"] for s in said["snapshots"]} == {one.pid, two.pid} and "2 of 3 processes" in said["partial"]
        assert [f["pid"] for f in said["failed"]] == [zombie.pid] and "zombie" in said["failed"][0]["reason"]
        assert sorted(os.listdir(tmp_path / "shots")) == sorted(f"gdbext-{p.pid}.core" for p in (one, two))
        assert one.runs() and two.runs()
        zombie.wait()


def test_several_processes_are_copied_side_by_side(tmp_path, monkeypatch):
    """Each collector waits until all know what to copy, however many processors there are; the files say when each was copied."""
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    with heartbeats(tmp_path, 4) as found:
        pids = [one.pid for one in found]
        said = answer(f"llm-snapshot {' '.join(map(str, pids))} -o {tmp_path / 'shots'} -json")
        moments = [one["time"] for one in said["snapshots"]]
        written = [os.stat(one["file"]).st_mtime for one in said["snapshots"]]
        assert len(moments) == 4 and all(copied <= at for copied, at in zip(moments, written)), (moments, written)
        assert any(copied < before for before, copied in zip(written, moments[1:])), "one after the other"
        assert [CoreFileTarget(one["file"]).moment for one in said["snapshots"]] == moments
        apart = max(moments) - min(moments)
        assert any("not of one moment" in reason for reason in said["partial"]) is (apart >= APART)
        assert all(one.runs() for one in found)


def test_a_disk_that_would_be_filled_is_refused_and_what_is_there_stays(tmp_path, monkeypatch):
    with heartbeats(tmp_path, 1) as (one,):
        file = tmp_path / "shot"
        file.write_text("kept")
        left = SimpleNamespace(f_bavail=room.SPARE_DISK + 4096, f_frsize=1)
        monkeypatch.setattr(collector.os, "statvfs", lambda path: left)
        with pytest.raises(GdbextError, match="name a file on another disk"):
            collector.take(one.pid, str(file), reader="gdbext.stacks.prefetch", heap=64 << 20)
        assert file.read_text() == "kept" and one.runs()
        assert [n for n in os.listdir(tmp_path) if "tmp" in n] == []


def test_a_killed_collector_leaves_no_half_file_and_the_process_runs_on(tmp_path):
    with heartbeats(tmp_path, 1) as (one,):
        file = tmp_path / "shots" / "shot"
        file.parent.mkdir()
        for delay in (0.1, 0.15, 0.2, 0.25, 0.3, 0.4):
            words = [sys.executable, "-m", "gdbext", "llm-snapshot", str(one.pid), "-o", str(file), "-max-bytes", str(1 << 30)]
            with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as work:
                time.sleep(2 * delay)
                work.kill()
            assert one.runs()
            if file.exists():
                assert CoreFileTarget(str(file)).threads()
            assert os.listdir(file.parent) in ([], ["shot"])
            file.unlink(missing_ok=True)


def test_bad_words_give_one_clear_line(tmp_path):
    for line, wanted in (
        ("llm-snapshot", "which process"),
        ("llm-snapshot 999999999", "no process"),
        ("llm-snapshot 1 -max-bytes -5", "0 or more"),
        (f"llm-snapshot {os.getppid()} -o /nowhere/at/all", "-o"),
    ):
        with pytest.raises(GdbextError, match=wanted) as e:
            answer(line)
        assert "\n" not in str(e.value)


SECRETS = ("hf_0123456789abcdefSECRET", "sk-proj-9876543210fedcbaSECRET")
KEEPS = """
import os, sys, time
wide = sys.orig_argv if hasattr(sys, "orig_argv") else sys.argv
copies = [dict(os.environ), list(sys.argv), "Bearer " + os.environ["HF_TOKEN"]]
big = bytearray(6000) + os.environ["HF_TOKEN"].encode() * 2000  # over page borders
def wait(token, key):
    print("up", flush=True)
    time.sleep(1000)
wait(os.environ["HF_TOKEN"], sys.argv[2])
"""


TITLED = """
import ctypes, os, sys, time
libc = ctypes.CDLL(None)
kept = [ctypes.create_string_buffer(k + b"=" + v) for k, v in os.environb.items()]
moved = (ctypes.c_char_p * (len(kept) + 1))(*[ctypes.cast(one, ctypes.c_char_p) for one in kept], None)
ctypes.c_void_p.in_dll(libc, "environ").value = ctypes.addressof(moved)
start, end = map(int, open("/proc/self/stat").read().rpartition(")")[2].split()[47:49])
ctypes.memset(start, 0, end - start)
print("up", flush=True)
time.sleep(600)
"""


def test_a_title_written_over_the_environment_shows_no_secret(tmp_path):
    """As setproctitle does it, in every process of an engine: the kernel's strings are gone, copies of them are not."""
    token = "-".join(["hf", "titled", "0123456789", str(os.getpid())])
    with spawned([sys.executable, "-c", TITLED], ready="up", env={**os.environ, "HF_TOKEN": token}) as one:
        with open(f"/proc/{one.pid}/environ", "rb") as f:
            assert token.encode() not in f.read()
        file = answer(f"llm-snapshot {one.pid} -o {tmp_path}/titled -json")["snapshots"][0]["file"]
        with open(file, "rb") as f:
            data = f.read()
        assert b"HF_TOKEN" in data and token.encode() not in data


RETITLED = """
import ctypes, mmap, os, struct, sys, time
with open("/proc/self/stat") as f:
    fields = [0] + [int(n) for n in f.read().rpartition(")")[2].split()[1:]]
start, end, _, last = fields[45:49]
if sys.argv[1] == "over":  # a title of so many bytes over the kernel's strings, as setproctitle writes it
    ctypes.memset(start, 0, end - start)
    ctypes.memset(start, 84, min(int(sys.argv[2]), last - start - 1))
else:  # prctl_mm_map (linux/prctl.h): the kernel is told that the command line lies elsewhere
    libc = ctypes.CDLL(None, use_errno=True)
    libc.sbrk.restype = ctypes.c_void_p
    room = mmap.mmap(-1, 4096)
    room[:6] = b"TITLE\\0"
    at = ctypes.addressof(ctypes.c_char.from_buffer(room))
    code, data, stack = fields[23:25], fields[42:45], fields[25]
    new = struct.pack("<12QII", *code, *data[:2], data[2], libc.sbrk(0), stack, at, at + 6, at + 6, at + 6, 0, 0, 2**32 - 1)
    if libc.prctl(35, 14, new, len(new), 0):  # PR_SET_MM, PR_SET_MM_MAP
        sys.exit(print("not allowed", flush=True))
with open("/proc/self/cmdline", "rb") as f:
    assert b"--api-key" not in f.read()
print("up", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("how", [("over", "1"), ("over", "20"), ("over", "3000"), ("told", "0")], ids="-".join)
def test_a_title_over_the_command_line_keeps_secrets_out_of_snapshots(tmp_path, how):
    """Titles shorter and longer than the words, and one that the kernel is told of: sys.argv still holds the words."""
    key = "-".join(["sk", "titled", "0123456789", str(os.getpid())])
    with spawned([sys.executable, "-c", RETITLED, *how, "--api-key", key], ready="") as one:
        if "not allowed" in one.said:
            pytest.skip("this user may not move its command line (PR_SET_MM)")
        file = answer(f"llm-snapshot {one.pid} -o {tmp_path}/shot -json")["snapshots"][0]["file"]
    with open(file, "rb") as f:
        data = f.read()
    assert b"--api-key" in data and not any(form in data for form in (key.encode(), key.encode("utf-32-le")))


CHILDREN = """
import multiprocessing, os, sys, time
def work(queue):
    queue.put((os.getpid(), multiprocessing.current_process().authkey.hex()))
    time.sleep(600)
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    queue = context.Queue()
    context.Process(target=work, args=(queue,), daemon=True).start()
    print(*queue.get(), flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_a_child_keeps_its_parents_command_line_and_key_out_of_a_snapshot(tmp_path, method):
    """A spawned child has its parent's sys.argv, which was never in a command line of its own, and the key by which the
    processes know each other."""
    key = "-".join(["sk", "child", "0123456789", str(os.getpid())])
    program = tmp_path / "program.py"
    program.write_text(CHILDREN)
    with spawned([sys.executable, str(program), method, "--api-key", key], ready="") as one:
        pid, authkey = one.said.split()
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            assert (key.encode() in f.read()) is (method == "fork")
        file = answer(f"llm-snapshot {pid} -o {tmp_path}/shot -json")["snapshots"][0]["file"]
    with open(file, "rb") as f:
        data = f.read()
    assert b"--api-key" in data and not any(one in data for one in (key.encode(), bytes.fromhex(authkey)))
    assert str(program).encode() in data  # the first word of sys.orig_argv is no value of the last option of sys.argv


@pytest.mark.parametrize("limit", ["-max-bytes 0", ""])
def test_a_snapshot_holds_no_secret_of_command_line_and_environment(tmp_path, limit):
    """A token of the environment and an API key of the command line, wherever the process keeps copies of them."""
    token, key = SECRETS
    with spawned(
        [sys.executable, "-c", KEEPS, "--api-key", key, "--port", "8000"],
        ready="",
        env={**os.environ, "HF_TOKEN": token, "PLAIN_MARK": "plain-and-long-enough"},
    ) as child:
        file = str(tmp_path / "shot")
        answer(f"llm-snapshot {child.pid} -o {file} {limit} -json")
        said = answer(f"pybt -on {file} -json")
    with open(file, "rb") as f:
        data = f.read()
    for secret in SECRETS:
        assert secret.encode() not in data and secret.encode("utf-32-le") not in data
    assert b"PLAIN_MARK=plain" not in data and b"--api-key\0**" not in data  # as the kernel and the C library keep them
    assert b"*" * len(token) in data, "no copy of the token was in what is read: the test shows nothing"
    assert [f["function"] for f in said["threads"][0]["frames"]] == ["wait", "<module>"]
    snapshot = CoreFileTarget(file)
    for ask in (snapshot.argv, snapshot.environ):
        with pytest.raises(GdbextError, match="may hold secrets"):
            ask()


# What nobody's list of names has, and what other tools call it; each value is said in its place only as MARK.
OTHER_VARIABLES = {
    "VAULT_UNSEAL": "MARK01zxcvbnm5678",
    "npm_config__auth": "MARK02zxcvbnm5678",
    "CI_JOB_JWT_V2": "MARK03zxcvbnm5678",
    "SESSION_COOKIE": "sid=MARK04zxcvbnm5678; theme=dark",
    "CELERY_BROKER": "amqp://guest:MARK05zxcvbnm5678@rabbit:5672//",
    "KUBECONFIG_INLINE": '{"users": [{"user": {"token": "MARK06zxcvbnm5678"}}]}',
    "SOME_SETTING": "MARK07zxcvbnm5678",
    "NCCL_PROXY_URL": "http://u:MARK08zxcvbnm5678@h",
}
OTHER_WORDS = [
    *("--proxy-user", "bob:MARK11zxcvbnm5678", "--header=Cookie: sid=MARK12zxcvbnm5678", "-p", "MARK13zxcvbnm5678"),
    *("--cache", "redis://:MARK14zxcvbnm5678@h:6379", "--extra.passphrase=MARK15zxcvbnm5678", "MARK16zxcvbnm5678"),
]


def test_no_secret_of_other_tools_and_none_without_a_name_is_in_a_snapshot(tmp_path):
    code = "import os, sys, time\ncopies = [dict(os.environ), list(sys.argv)]\nprint('up', flush=True)\ntime.sleep(1000)"
    env = {**os.environ, **OTHER_VARIABLES}
    with spawned([sys.executable, "-c", code, *OTHER_WORDS], ready="up", env=env) as child:
        answer(f"llm-snapshot {child.pid} -o {tmp_path}/shot -json")
    with open(tmp_path / "shot", "rb") as f:
        data = f.read()
    assert b"VAULT_UNSEAL" in data and b"--proxy-user" in data, "nothing of them is in what is read: the test shows nothing"
    assert sorted(set(re.findall(rb"MARK\d\d", data) + re.findall(rb"M\0\0\0A\0\0\0R\0\0\0K\0\0\0.{8}", data))) == []


BESIDE = """
import time
table = {i: (str(i) * 3, [i, i + 1]) for i in range(40000)}
big = bytearray(b"x") * (200 << 20)  # malloc maps it by itself, right beside Python's arenas: the kernel makes them one mapping
more = {i: (str(i) * 5, [i]) for i in range(40000)}
def wait():
    print("up", flush=True)
    time.sleep(1000)
wait()
"""


def test_one_big_block_is_left_out_and_what_shares_its_mapping_is_kept(tmp_path):
    with spawned([sys.executable, "-c", BESIDE], ready="") as child:
        pid, file = child.pid, str(tmp_path / "shot")
        said = answer(f"llm-snapshot {pid} -max-bytes {120 << 20} -o {file} -json")
        live = [answer(f"pyprint -on {pid} -json {text}")["repr"] for text in ("len(table)", "table[39999]", "more[7]")]
        copy = [answer(f"pyprint -on {file} -json {text}")["repr"] for text in ("len(table)", "table[39999]", "more[7]")]
        start = int(answer(f"pyprint -on {pid} -json -any big")["address"], 0)
    assert live == copy == ["40000", "('399993999939999', [39999, 40000])", "('77777', [7])"]
    target = CoreFileTarget(file)
    for text in ("table", "more"):
        rt = open_runtime(target)
        items = rt.module("__main__").item(text).items(50000)
        assert len(items) == 40000 and all(value.elements(2)[0].string(40) for _, value in items)
    assert start and any("200.0 MiB at 0x" in reason for reason in said["partial"]) and os.path.getsize(file) < 150 << 20


AT_WORK = """
import asyncio, random
kept = []
async def leaf():
    await asyncio.sleep(random.random() / 20)
    return [bytes(50) for _ in range(20)]
async def work():
    while len(kept) < 200000 or kept.clear() is None:
        kept.append(await asyncio.create_task(leaf()))
async def main():
    print("up", flush=True)
    await asyncio.gather(*(work() for _ in range(200)))
asyncio.run(main())
"""


def test_what_a_process_used_just_before_the_stop_is_in_its_snapshot(tmp_path):
    with spawned([sys.executable, "-c", AT_WORK], ready="up") as child:
        for number in range(3):
            time.sleep(0.5)  # it needs ever more memory
            answer(f"llm-snapshot {child.pid} -heap -o {tmp_path}/{number} -json")
    for number in range(3):
        said = answer(f"pytasks -on {tmp_path}/{number} -json")
        assert not [reason for reason in said["partial"] if "not in the snapshot" in reason], said["partial"][:3]
        assert len(said["tasks"]) > 300


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_copy_of_memory_has_a_name(number, tmp_path):
    """It holds secrets: nothing of it is to be found on the disk, at any moment, nor when the command is ended in the middle."""
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    with spawned([sys.executable, "-c", "print('up', flush=True); input()"], ready="up") as one:
        words = [sys.executable, "-m", "gdbext", "llm-stacks", "-samples", "1000", "-interval", "0", str(one.pid)]
        with subprocess.Popen(words, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as asking:

            def is_copied():
                assert not os.listdir(tmp_path)
                return any(link.startswith("/memfd:gdbext") for link in links(asking.pid))

            eventually(is_copied, "a copy to be made")
            asking.send_signal(number)
        assert one.poll() is None
    assert not os.listdir(tmp_path)


def links(pid):
    """Where the file descriptors of a process lead."""
    try:
        return [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return []
