"""The first process of an arm64 machine (harness/arm_machine.py). /plan is {minor: [interpreter, scripts]}: each runs its scripts
in a root of its own, the folder /roots/MINOR. Then the machine is off."""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import time

from machine import tell

POWER_OFF, MS_BIND, SECONDS = 0x4321FEDC, 4096, 600  # for one script
libc = ctypes.CDLL(None, use_errno=True)


def mount(what, place, kind="none", flags=0):
    if libc.mount(what.encode(), place.encode(), kind.encode(), flags, None):
        print(f"no {place}: {os.strerror(ctypes.get_errno())}", flush=True)


def run(root, python, script):
    """Tells how a script ended and in how many seconds; what it has started ends with it."""
    began = time.monotonic()
    words = [python, "-S", "-u", f"/repo/guest/{script}"]
    with subprocess.Popen(words, preexec_fn=lambda: (os.chroot(root), os.chdir("/"))) as child:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)  # all but the first
    tell(**{script: [child.returncode, round(time.monotonic() - began)]})


try:
    for kind, place in (("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")):
        mount(kind, place, kind)
    os.environ.update(HOME="/root", PATH="/usr/bin:/bin", LANG="C.UTF-8", WHICH="machine")
    tell(uname=[os.uname().machine, os.uname().release], page=os.sysconf("SC_PAGE_SIZE"))
    with open("/plan") as f:
        plan = json.load(f)
    for minor, (python, scripts) in plan.items():
        os.environ["WHICH"] = minor
        for place in ("/proc", "/sys", "/dev", "/repo"):
            mount(place, f"/roots/{minor}{place}", flags=MS_BIND)
        for place in ("/tmp", "/root"):
            mount("tmpfs", f"/roots/{minor}{place}", "tmpfs")
        for script in scripts:
            run(f"/roots/{minor}", python, script)
finally:
    libc.reboot(POWER_OFF)
