"""A real engine on a GPU, started for a test (tests/gpu/subjects/serve_gpu.py), and what its processes say of themselves."""

import contextlib
import json
import os
import signal
import struct
import subprocess
import tempfile
import time

import pytest
from tools.gpu_kit import needs
from tools.say import Failed

SUBJECTS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "gpu", "subjects")
POINTS = "".join(f"[{group}]\ngdbext = gpu_witness:register\n" for group in ("vllm.general_plugins", "sglang.srt.plugins"))
START = 400  # seconds: a cold cache of Triton's and nvcc's kernels


class GpuEngine:
    """`folder`: where its processes write; `process`: the one that a user would have started; `log`: the path of its output."""

    def __init__(self, process, folder, log):
        self.process, self.folder, self.log = process, folder, log

    def wait(self, seconds=START):
        """Until it has answered."""
        end = time.monotonic() + seconds
        while not os.path.exists(os.path.join(self.folder, "ready")):
            with open(self.log, errors="replace") as f:
                said = f.read()[-3000:]
            assert self.process.poll() is None, f"the engine ended with {self.process.poll()}: {said}"
            assert time.monotonic() < end, f"the engine is not ready after {seconds} s: {said}"
            time.sleep(0.2)

    def truths(self, seconds=10):
        """{pid: what the process says of itself now} of each that still runs Python."""
        asked = str(time.time_ns())
        path = os.path.join(self.folder, "ask")
        with open(path + ".new", "w") as f:
            f.write(asked)
        os.replace(path + ".new", path)
        end, found = time.monotonic() + seconds, {}
        while time.monotonic() < end:
            pids = {int(name[8:]) for name in os.listdir(self.folder) if name.startswith("witness.")}
            for pid in pids - set(found):
                with contextlib.suppress(OSError), open(os.path.join(self.folder, f"{pid}.json")) as f:
                    said = json.load(f)
                    if said["asked"] == asked:
                        assert "error" not in said, said
                        found[pid] = said
            if all(pid in found or not os.path.exists(f"/proc/{pid}/cmdline") for pid in pids):
                break
            time.sleep(0.05)
        return found

    def one(self, key, rank=None):
        """(pid, truth) of the process that has a "scheduler" or a "runner", of `rank` where it is named."""
        truths = self.truths()
        found = [(pid, t) for pid, t in truths.items() if key in t and (rank is None or t.get("rank") == rank)]
        assert found, f"no process of the engine told of a {key}: {[(pid, sorted(t)) for pid, t in truths.items()]}"
        return found[0]

    def tokens(self):
        """Tokens that were answered so far."""
        with open(os.path.join(self.folder, "tokens"), "rb") as f:
            return struct.unpack("<QQ", f.read(16))[0]

    def goes_on(self, seconds=10):
        """Whether it answers more within the time."""
        before, end = self.tokens(), time.monotonic() + seconds
        while self.tokens() == before and self.process.poll() is None and time.monotonic() < end:
            time.sleep(0.1)
        return self.tokens() > before

    def fall(self, seconds=30, lasting=False):
        """Lets the fault happen, and waits until nothing is answered any more, but for one that the engine survives
        (`lasting`)."""
        open(os.path.join(self.folder, "fault"), "w").close()
        end = time.monotonic() + seconds
        while not any(name.startswith("harmed.") for name in os.listdir(self.folder)):
            assert time.monotonic() < end, "the fault did not happen"
            time.sleep(0.1)
        while not lasting and self.goes_on(2):
            assert time.monotonic() < end, "the engine goes on with its fault"


def witness_site(folder):
    """Makes a folder to import from, in which engines find the witness by its entry points."""
    info = os.path.join(str(folder), "gdbext_witness-1.dist-info")
    os.makedirs(info)
    for name, text in (("METADATA", "Metadata-Version: 2.1\nName: gdbext-witness\nVersion: 1\n"), ("entry_points.txt", POINTS)):
        with open(os.path.join(info, name), "w") as f:
            f.write(text)
    os.symlink(os.path.join(SUBJECTS, "gpu_witness.py"), os.path.join(str(folder), "gpu_witness.py"))
    return str(folder)


@contextlib.contextmanager
def engine_at_work(name, *options, fault=None, env=(), python=None):
    """-> GpuEngine that answers requests with `options` of serve_gpu.py; `fault`: what `fall` lets happen, "spin" or "skip:1";
    `env`: more variables; `python`: an interpreter that has the engine. Skips where there is none, with what to do."""
    try:
        python, site = (python, "") if python else needs.engine(name)
    except Failed as e:
        pytest.skip(str(e))
    with tempfile.TemporaryDirectory(prefix="gdbext-gpu-", ignore_cleanup_errors=True) as base:
        folder, log = (
            os.path.join(base, "said"),
            os.path.join(os.environ.get("GDBEXT_TEST_GPU_LOGS") or base, os.path.basename(base)),
        )
        os.makedirs(folder)
        paths = [witness_site(os.path.join(base, "site")), *filter(None, [site])]
        environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        environ.update(PYTHONPATH=os.pathsep.join(paths), GDBEXT_WITNESS=folder, **dict(env))
        environ.update({"GDBEXT_FAULT": fault} if fault else {}, **({"GDBEXT_ONE_GPU": "1"} if "--tp" in options else {}))
        words = [python, os.path.join(SUBJECTS, "serve_gpu.py"), folder, "--engine", name, *options]
        with open(log, "wb") as f:
            process = subprocess.Popen(
                words, env=environ, cwd=base, stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            engine = GpuEngine(process, folder, log)
            engine.wait()
            yield engine
        finally:
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(8)
