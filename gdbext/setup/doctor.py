"""`python -m gdbext doctor`: what works here and what does not, each fault with the line that fixes it."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from typing import Any

from .. import __version__, package, wheels
from ..access.permission import SYS_PTRACE
from ..errors import GdbextError
from ..render.text import Style
from . import gdbs, initfile
from .unpack import init_script

ADD_CAPABILITY = (
    "docker run --cap-add=SYS_PTRACE ...   (kubernetes: securityContext.capabilities.add: [SYS_PTRACE]; an old kernel or "
    "profile also needs --security-opt seccomp=unconfined)"
)

PACKAGES = {
    "numpy": "heap, -stats",
    "matplotlib": "-plot",
    "pygments": "colours of source",
    "mcp": "agents",
    "clustershell": "sets of nodes",
}
LOADS = " loads gdbext"  # ends the name of the check that a gdb does
NO_GDB = "no gdb on the PATH; commands that read need none, breakpoints and steps do"


class Check:
    """`status`: "ok", "failed" (gdbext cannot do its main work), "warning" (a part of it is missing) or "info"."""

    def __init__(self, name: str, status: str, detail: str, mend: str = "") -> None:
        self.name, self.status, self.detail, self.mend = name, status, detail, mend


def _file(path: str) -> Any:
    try:
        with open(path, errors="replace") as f:
            return f.read()
    except OSError:
        return None


def process_facts() -> dict[str, Any]:
    """The facts of /proc about the right to trace: {scope, capabilities, seccomp, container, uid}."""
    status = dict(re.findall(r"^(\w+):\s*(\S+)", _file("/proc/self/status") or "", re.M))
    scope = _file("/proc/sys/kernel/yama/ptrace_scope")
    cgroup = _file("/proc/1/cgroup") or ""
    container = (
        os.path.exists("/.dockerenv")
        or os.path.exists("/run/.containerenv")
        or "KUBERNETES_SERVICE_HOST" in os.environ
        or bool(re.search(r"docker|kubepods|containerd|lxc", cgroup))
    )
    return {
        "scope": int(scope) if scope else 0,
        "capabilities": int(status.get("CapEff", "0"), 16),
        "seccomp": int(status.get("Seccomp", 0)),
        "container": container,
        "uid": os.geteuid(),
    }


_TRACER = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long] * 2 + [ctypes.c_void_p] * 2
libc.ptrace.restype = ctypes.c_long
sys.exit(ctypes.get_errno() if libc.ptrace(0x4206, int(sys.argv[1]), None, None) else 0)  # PTRACE_SEIZE: does not stop it
"""


def try_trace() -> int:
    """errno of one process tracing another of this user that is not its child, as gdb -p does; 0 when it may."""
    subject = subprocess.Popen([sys.executable, "-S", "-c", "import sys; sys.stdin.read()"], cwd="/", stdin=subprocess.PIPE)
    try:
        return subprocess.run(
            [sys.executable, "-S", "-c", _TRACER, str(subject.pid)],
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
        ).returncode
    finally:
        if subject.stdin is not None:
            subject.stdin.close()
        subject.wait()


def check_trace(facts: dict[str, Any], error: int) -> Check:
    """May one process of this user read and attach another? `error`: the result of `try_trace`."""
    may = bool(facts["capabilities"] >> SYS_PTRACE & 1)
    where = f"ptrace_scope {facts['scope']}, {'with' if may else 'without'} SYS_PTRACE" + (
        ", in a container" if facts["container"] else ""
    )
    if facts["seccomp"] == 2:
        where += ", with a seccomp filter"
    if not error:
        other = "" if may else "; processes of other users need sudo"
        return Check("attach", "ok", f"may attach to your processes ({where}{other})")
    if facts["scope"] == 3:
        return Check(
            "attach",
            "failed",
            f"no process may be attached ({where})",
            "kernel.yama.ptrace_scope is 3, which only a reboot with a lower value changes",
        )
    if facts["scope"] and not may and not (facts["container"] and facts["uid"] == 0):
        return Check(
            "attach", "failed", f"may attach to own children only ({where})", "sudo sysctl -w kernel.yama.ptrace_scope=0"
        )
    return Check(
        "attach",
        "failed",
        f"may not attach: {os.strerror(error)} ({where})",
        ADD_CAPABILITY if facts["container"] or facts["uid"] == 0 else "run this with sudo",
    )


def check_gdb(path: str) -> tuple[gdbs.Gdb | None, list[Check]]:
    """Checks one gdb: that it runs, has Python, loads the pack, has the wheels. -> (the gdb, or None where it does not run;
    checks)"""
    try:
        gdb = gdbs.ask(path)
    except GdbextError as e:
        return None, [Check("gdb", "warning" if "cuda" in os.path.basename(path) else "failed", str(e), gdbs.GET_GDB)]
    name = "cuda-gdb" if gdb.cuda else "gdb"
    bad = "warning" if gdb.cuda else "failed"
    if gdb.python is None:
        mend = (
            "put a python3 of a version that this cuda-gdb supports on the PATH (its wrapper falls back to cuda-gdb-minimal)"
            if gdb.cuda
            else "install a gdb with Python: apt-get install gdb   (not gdb-minimal)"
        )
        return gdb, [Check(name, bad, f"{path}: {gdb.version}: built without Python, which gdbext needs", mend)]
    python = "%d.%d" % gdb.python
    checks = [Check(name, "ok", f"{path}: {gdb.version}, with Python {python}")]
    if gdb.base and gdb.base < (10, 2):
        checks.append(
            Check(
                name + " version", "warning", f"{path} is older than gdb 10.2, the oldest that gdbext is made for", gdbs.GET_GDB
            )
        )
    line = f"source {init_script()}"
    loaded = gdbs.run_gdb(path, line, "help llm-ranks")
    if loaded.returncode == 0 and "llm-ranks" in loaded.stdout:
        checks.append(Check(name + LOADS, "ok", line))
    else:
        words = (loaded.stderr.strip() or loaded.stdout.strip() or f"exit status {loaded.returncode}").splitlines()
        checks.append(Check(name + LOADS, bad, f"{line}: {words[-1]}", "report this line as a bug of gdbext"))
    folder = wheels.wheels_folder(gdb.python)
    asked = gdbs.run_gdb(
        path,
        f"python import sys; sys.path.append({folder!r})",
        *(f"python import {p}; print('HAS', {p!r})" for p in wheels.PACKAGES),
    )
    missing = [p for p in wheels.PACKAGES if f"HAS {p}\n" not in asked.stdout]
    checks.append(
        Check(
            f"{name} wheels",
            "warning" if missing else "ok",
            f"Python {python} of {path} lacks {', '.join(missing)}"
            if missing
            else f"{', '.join(wheels.PACKAGES)} for Python {python}",
            f"{package.how()} install" if missing else "",
        )
    )
    return gdb, checks


def check_init_files() -> Check:
    """Whether an init file of gdb's loads the pack."""
    try:
        loading = [p for p in initfile.init_files()[1] if initfile.BEGIN.rstrip(b" >") in (initfile.read(p) or b"")]
    except GdbextError as e:
        return Check("init file", "warning", f"not checked: {e}", f"HOME=/a/folder/of/yours {package.how()} doctor")
    if loading:
        return Check("init file", "ok", "gdbext is loaded by " + ", ".join(loading))
    said = f"no init file loads gdbext; in gdb type: source {init_script()}"
    return Check("init file", "info", said, f"{package.how()} install")


def check_safe_path(gdb: gdbs.Gdb, python: str | None = None) -> Check:
    """Checks that gdb trusts a python3.X-gdb.py next to a Python. Otherwise it prints nine lines of warning at every attach to
    that Python."""
    real = os.path.realpath(python or sys.executable)
    script = real + "-gdb.py"
    allowed = [p for p in gdb.safe_path.split(":") if p and not p.startswith("$")]
    if not os.path.exists(script) or any(script == p or script.startswith(p.rstrip("/") + "/") for p in allowed):
        return Check("auto-load", "ok", f"nothing next to {real} that gdb would refuse to load")
    return Check(
        "auto-load",
        "warning",
        f"gdb warns at each attach that it does not load {script} (gdbext does not need it)",
        f"echo 'add-auto-load-safe-path {script}' >> ~/.gdbinit",
    )


def check_calls(gdb: gdbs.Gdb) -> Check:
    """Whether calls that users make with this gdb would harm the process on this CPU."""
    flags = _file("/proc/cpuinfo")
    if flags is None:
        return Check(
            "calls", "info", "not checked: /proc/cpuinfo cannot be read; gdbext calls no function of the process it reads"
        )
    if "amx_tile" in flags and gdb.base and gdb.base < (14, 0):
        return Check(
            "calls",
            "info",
            "on this CPU (AMX) gdb 13 and older fail at every call into the process, and may harm it; gdbext makes none",
            "set may-call-functions off",
        )
    return Check("calls", "ok", "gdbext calls no function of the process it reads")


def layouts() -> dict[str, list[str]]:
    """{"cpython": [...], "torch": [...]}: the versions that there are layouts for, from the tables in gdbext/layouts."""
    try:
        found = {
            "cpython": [n[:-5] for n in package.names("layouts/cpython") if re.match(r"\d[\w.]*\.json$", n)],
            "torch": list(package.table("layouts/torch.json")["rows"]),
        }
    except (OSError, ValueError):
        return {"cpython": [], "torch": []}
    return {kind: sorted(names, key=lambda n: ([int(x) for x in re.findall(r"\d+", n)], n)) for kind, names in found.items()}


def check_layouts(known: dict[str, list[str]]) -> Check:
    """`known`: the result of `layouts`."""
    gone = [k for k, names in known.items() if not names]
    said = "; ".join(f"{k} {', '.join(names)}" for k, names in known.items() if names)
    if gone:
        return Check(
            "layouts",
            "failed",
            f"no layouts for {' and '.join(gone)}" + (f"; known: {said}" if said else ""),
            "install gdbext again: files of gdbext/layouts are missing",
        )
    return Check("layouts", "ok", said)


def check_versions() -> list[Check]:
    """The versions of everything but gdb: the pack, its Python, the system, and the packages that more answers need."""
    from importlib import metadata

    libc = " ".join(platform.libc_ver()).strip() or "an unknown libc"
    here, lacking = [], []
    for name, use in PACKAGES.items():
        try:
            here.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            lacking.append(f"{name} ({use})")
    found = ", ".join(here) or "none of these"
    return [
        Check("gdbext", "ok", f"{__version__}, in {os.path.dirname(os.path.dirname(os.path.abspath(__file__)))}"),
        Check("python", "ok", f"{sys.executable}: Python {sys.version.split()[0]}"),
        Check("system", "ok", f"Linux {os.uname().release}, {os.uname().machine}, {libc}"),
        Check("packages", "info", found + (f"; not here: {', '.join(lacking)}" if lacking else "")),
    ]


def run(gdb: str | None = None) -> list[Check]:
    """Every check, in the order in which a user needs them; only those of the program `gdb` where it is given."""
    checks = check_versions()
    paths = gdbs.find(gdb)
    found = None
    if not any("cuda" not in os.path.basename(p) for p in paths):
        checks.append(Check("gdb", "warning", NO_GDB, gdbs.GET_GDB))
    for path in paths:
        this, more = check_gdb(path)
        checks += more
        found = found or this
    if not any("cuda" in os.path.basename(p) for p in paths) and not gdb:
        checks.append(Check("cuda-gdb", "info", "none here; needed only for GPU kernels and device memory"))
    checks.append(check_trace(process_facts(), try_trace()))
    checks.append(check_init_files())
    if found:
        checks += [check_safe_path(found), check_calls(found)]
    checks.append(check_layouts(layouts()))
    return checks


def data(checks: list[Check]) -> dict[str, Any]:
    """The JSON fields of the answer."""
    return {
        "ok": all(c.status != "failed" for c in checks) and _loads(checks),
        "checks": [{"name": c.name, "status": c.status, "detail": c.detail, "mend": c.mend} for c in checks],
    }


def _loads(checks: list[Check]) -> bool:
    """Whether a gdb loads the pack, or there is none here."""
    return any(c.name.endswith(LOADS) and c.status == "ok" or c.detail == NO_GDB for c in checks)


def text(checks: list[Check], style: Style) -> str:
    """Lines for people."""
    marks = {
        "ok": style.good("ok     "),
        "failed": style.bad("FAILED "),
        "warning": style.name("warning"),
        "info": style.dim("info   "),
    }
    lines = []
    for c in checks:
        lines.append(f"{marks[c.status]}  {c.name}: {c.detail}")
        if c.mend:
            lines.append(f"           fix: {c.mend}" if c.status in ("failed", "warning") else f"           {c.mend}")
    failed = [c.name for c in checks if c.status == "failed"]
    lines.append("")
    if not failed and not _loads(checks):
        failed = ["no gdb was found that loads gdbext"]
    lines.append(style.bad("does not work: " + ", ".join(failed)) if failed else style.good("what gdbext needs is here"))
    return "\n".join(lines)
