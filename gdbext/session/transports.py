"""The machines that a word names, and the user's own programs that reach them: kubectl, ssh, srun, tasks of Ray.

A word may name many: `ssh:gpu[001-064]`, `pods/NS/SELECTOR`. `slurm:JOB` and `ray:` go to all machines of a job or cluster by one
program, which begins each line of an answer with the name of its machine.

Every command line is a list of words: no shell of ours sees a name. ssh joins its words for the shell on the other machine, so it
gets them quoted."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence

from .. import log
from ..errors import GdbextError

NAME = r"[A-Za-z0-9][\w.-]*"
_SET = rf"(?:{NAME}|@{NAME})(?:\[[\d,-]+\][\w.-]*)*"  # as ClusterShell writes sets and groups of machines
_LABEL = rf"!?{NAME}(?:/{NAME})?(?:(?:=|==|!=)[\w.-]*)?"
NODE = re.compile(
    rf"(?:(?P<what>.*?)@)?(?P<node>pod/{NAME}/{NAME}(?:/{NAME})?"
    rf"|pods/{NAME}/{_LABEL}(?:,{_LABEL})*(?:/{NAME})?"
    rf"|ssh:(?:{NAME}@)?{_SET}|slurm:\d[\w.+]*|ray:)"
)
LIKE_NODE = re.compile(r"(?:^|[@,=])(?:(?:pods?/|ssh:|slurm:)(?=\S)|ray:(?!:))")
USAGE = (
    "[WHAT@]pod/NAMESPACE/NAME[/CONTAINER], pods/NAMESPACE/SELECTOR[/CONTAINER], ssh:[USER@]HOST, slurm:JOB or ray:, one a word"
)
LABELLED = {"slurm": re.compile(r"\s*(\d{1,9}): ?"), "ray": re.compile(r"([\w.:-]{1,200})\| ?")}  # how lines of an answer begin
MOST_NODES = 1024
LISTING = 30.0  # seconds for a list of machines


def nodes_of(node: str) -> list[str]:
    """The single nodes that a word names. Names only: no machine is asked but Kubernetes' API server, for pods."""
    if node.startswith("pods/"):
        return _pods(node)
    many = re.fullmatch(rf"ssh:(?P<user>{NAME}@)?(?P<hosts>@.*|.*\[.*)", node)
    if many is not None:
        return [f"ssh:{many['user'] or ''}{host}" for host in _hosts(many["hosts"])]
    return [node]


def _hosts(text: str) -> list[str]:
    """The machines of a set or group, by ClusterShell."""
    try:
        from ClusterShell.NodeSet import NodeSet, NodeSetException  # type: ignore[import-not-found,unused-ignore]
    except ImportError as e:
        log.passed_over(e)
        raise GdbextError(f"ssh:{text} names several machines, which takes ClusterShell: pip install 'gdbext[cluster]'") from None
    try:
        found = NodeSet(text)
        if len(found) > MOST_NODES:
            raise GdbextError(f"ssh:{text} names {len(found)} machines: {MOST_NODES} at most")
        hosts = [str(host) for host in found]
    except NodeSetException as e:
        raise GdbextError(f"ssh:{text}: {e}") from None
    if not hosts:
        raise GdbextError(f"ssh:{text} names no machine")
    for host in hosts:
        if not re.fullmatch(NAME, host):
            raise GdbextError(f"ssh:{text}: {host!r} is no machine's name")
    return hosts


def _pods(node: str) -> list[str]:
    """The running pods that have the labels of a selector."""
    import subprocess

    _, namespace, rest = node.split("/", 2)
    selector, slash, container = rest.rpartition("/")
    if not slash or "=" in container or "=" not in selector:  # the last part is a label's, as in app.kubernetes.io/name=vllm
        selector, container = rest, ""
    line = ["kubectl", "get", "pods", "-n", namespace, "-l", selector, "--field-selector=status.phase=Running", "-o", "name"]
    try:
        done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LISTING, errors="replace")
    except (OSError, subprocess.TimeoutExpired) as e:
        raise GdbextError(f"{node}: kubectl: {getattr(e, 'strerror', None) or f'no answer in {LISTING:g} s'}") from None
    if done.returncode:
        raise GdbextError(f"{node}: {(done.stderr.strip().splitlines() or [f'kubectl: exit status {done.returncode}'])[-1]}")
    names = [line.partition("/")[2] for line in done.stdout.split() if re.fullmatch(rf"pod/{NAME}", line)]
    if not names:
        raise GdbextError(f"{node}: no pod that runs has these labels")
    if len(names) > MOST_NODES:
        raise GdbextError(f"{node}: {len(names)} pods: {MOST_NODES} at most")
    return [f"pod/{namespace}/{name}" + (f"/{container}" if container else "") for name in sorted(names)]


def command_line(node: str, words: Sequence[str]) -> list[str]:
    """The command line that runs `words` on a single node, or on all of a job or cluster, with its standard input."""
    kind = re.match(r"pod/|ssh:|slurm:|ray:", node)
    if kind is None:
        raise GdbextError(f"{node}: no node")
    if kind[0] == "pod/":
        _, namespace, name, *container = node.split("/")
        return ["kubectl", "exec", "-i", "-n", namespace, name, *(["-c", *container] if container else []), "--", *words]
    if kind[0] == "ssh:":
        quoted = " ".join(shlex.quote(word) for word in words)
        return ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "--", node[len("ssh:") :], quoted]
    if kind[0] == "slurm:":
        job = node[len("slurm:") :]
        return ["srun", "--overlap", f"--jobid={job}", "--ntasks-per-node=1", "--label", *words]
    import pkgutil

    program = pkgutil.get_data("gdbext.session", "ray_carrier.py")
    return [sys.executable, "-c", (program or b"").decode(), *words]
