"""The engine's own profiler, started and stopped through its HTTP server, which is found from the ranks: the listening sockets of their processes
and of those that started them.

End points: vLLM entrypoints/serve/profile/api_router.py, SGLang srt/entrypoints/http_server.py: POST /start_profile, POST /stop_profile.
"""

import http.client
import os
import urllib.error
import urllib.request

from ..errors import GdbextError, NotFoundError
from ..target.proc import ProcTarget, read_proc

# engine -> (where traces land: environment variable, command-line option), how the end point is turned on
ENGINES = {
    "vllm": (
        ("VLLM_TORCH_PROFILER_DIR", "torch_profiler_dir"),
        'vLLM has the end point only when it was started with a profiler: vllm serve … --profiler-config \'{"profiler": "torch", "torch_profiler_dir": "DIR"}\' '
        "(before 0.13: VLLM_TORCH_PROFILER_DIR=DIR in its environment)",
    ),
    "sglang": (("SGLANG_TORCH_PROFILER_DIR", ""), "SGLang always has the end point; traces land in SGLANG_TORCH_PROFILER_DIR, or /tmp"),
}
LISTEN = "0A"
TIMEOUT = 60.0


def listening(pid):
    """`[port]` that a process listens on over TCP, ascending. Source: Documentation/networking/proc_net_tcp.rst."""
    inodes, ports = set(), set()
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                link = os.readlink(f"/proc/{pid}/fd/{fd}")
            except OSError:
                continue
            if link.startswith("socket:["):
                inodes.add(link[8:-1])
    except OSError:
        return []
    for name in ("net/tcp", "net/tcp6"):
        try:
            lines = read_proc(pid, name).decode("ascii", "replace").splitlines()[1:]
        except GdbextError:
            continue
        for line in lines:
            words = line.split()
            if len(words) > 9 and words[3] == LISTEN and words[9] in inodes:
                ports.add(int(words[1].rpartition(":")[2], 16))
    return sorted(ports)


def servers(ranks):
    """`[(pid, port)]` where the engine of these ranks may answer HTTP: their ancestors' and siblings' listening ports, the front end's first."""
    order = sorted(ranks, key=lambda r: r.role != "frontend")
    pids = list(dict.fromkeys([r.pid for r in order] + [r.ppid for r in order if r.ppid > 1]))
    return [(pid, port) for pid in pids for port in listening(pid)]


def ask(port, path):
    """POST to 127.0.0.1; -> the HTTP status, None where nobody answers HTTP there."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=b"{}", headers={"Content-Type": "application/json"}, method="POST")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=TIMEOUT) as answer:
            return answer.status
    except urllib.error.HTTPError as e:
        return e.code
    except (OSError, ValueError, http.client.HTTPException):  # nobody there, or what answers is no HTTP
        return None


def traces(rank):
    """Where the traces of a rank's engine land, '' when nothing says so."""
    (variable, option), _ = ENGINES[rank.engine]
    try:
        target = ProcTarget(rank.pid)
        found = target.environ().get(variable, "")
        for word in [] if found or not option else target.argv():
            if option in word:
                _, _, rest = word.partition(option)
                found = rest.lstrip('"\' :=').split('"')[0].split(",")[0].rstrip("}")
        return found
    except NotFoundError:
        return ""


def switch(ranks, verb):
    """Starts or stops the profiler of the engine of `ranks`; -> (port, folder of the traces). `GdbextError` names what turns it on."""
    known = [r for r in ranks if r.engine in ENGINES]
    if not known:
        raise GdbextError(f"none of these ranks is of an engine whose profiler is known ({', '.join(ENGINES)}); sampled stacks need none: llm-stacks -samples 200 -folded FILE")
    off = ""
    for _, port in servers(known):
        status = ask(port, f"/{verb}_profile")
        if status is not None and 200 <= status < 300:
            return port, next((t for t in map(traces, known) if t), "")
        if status in (404, 405):
            off = off or f"port {port} answers without it ({status})"
        elif status is not None and not off:
            off = f"port {port} answered {status}: see the engine's log"
    hint = ENGINES[known[0].engine][1]
    why = off or "no HTTP server of it was found (it runs without one, or behind another process)"
    raise GdbextError(f"{known[0].engine}: {why}. {hint}. Without it: llm-stacks -samples 200 -folded FILE")
