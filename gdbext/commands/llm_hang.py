"""llm-hang: why it hangs, with evidence, or that this cannot be told."""

import os

from ..answers.places import closing, node_text, nodes_of, place
from ..errors import GdbextError
from ..lazy import lazy_module
from ..render.text import escape
from ..session import process_selection
from ..session.command import Answer, Command, Option, UsageError

snapshots, sampling, verdicts = lazy_module("stacks.snapshots"), lazy_module("stacks.sampling"), lazy_module("verdict.verdict")

MEANING = {
    "lock-cycle": "threads wait for one another's locks",
    "lock-held": "a lock is held by one that does not give it back",
    "gil": "one thread keeps the GIL",
    "collective": "ranks wait in a collective for others that are not there",
    "kernel": "a device kernel does not end",
    "starved": "somebody waits for what another does not give",
    "busy": "it is at work, not hung",
    "idle": "it waits for work, not hung",
    "stopped": "a process is stopped",
    "crashed": "a process has died",
    "startup": "it has not started up yet",
    "unknown": "what was seen does not tell",
}


class LlmHang(Command):
    """Say why processes hang: one verdict, its culprits and the evidence, or that what can be seen does not tell.

    Watches all of them for a second without stopping them (CPU clocks, states, Python stacks, who holds the GIL), then copies each in a
    pause of milliseconds; every process runs on. Reads stacks, locks (those between processes too), the GIL, collectives and how many of
    them each rank has begun (torch's groups, NCCL's communicators), vLLM's rings in shared memory; compares the ranks with one another,
    and names as culprit who blocks the others by itself, as victims those who only wait.

      (gdb) llm-hang all
      collective: ranks wait in a collective for others that are not there
      culprit: TP3 4245 MainThread
        TP0-2 wait in all_reduce, called from forward (llama.py:212)
        TP3 has not come to it: TP3 thread 4245 (MainThread) stands in throttle (limits.py:17), 0 % of a processor
      victims: TP0, TP1, TP2

    Verdicts: lock-cycle, lock-held, gil, collective, kernel (a device kernel), starved, busy, idle, stopped, crashed, startup, unknown.
    "unknown" is an answer: llm-stacks and llm-locks then show what was read. WHAT as for llm-stacks."""

    name = "llm-hang"
    group = "hang"
    operand = "[WHAT...]"
    completion = "what"
    takes_target = False
    standalone = True
    options = (Option("wait", "float", "seconds to watch before the stop; longer than one step of a slow engine", 1.0, "S"),)

    def run(self, session, args):
        if not 0 <= args.wait <= 600:
            raise UsageError("llm-hang: -wait is 0 to 600 seconds")
        data, seen = examine(
            process_selection.resolve_processes(session, args.operand_text), process_selection.attached_target(session), args.wait
        )
        nodes = nodes_of([s.view for s in seen if s.view])
        names = {s.pid: s.name for s in seen}
        partial = [f"{s.name}: {reason}" for s in seen for reason in s.partial]
        if data["failed"]:
            partial.append(f"{data['ranks_read']} of {data['ranks_total']} processes")

        def text(style):
            return "\n".join(verdict_lines(data, style, nodes) + closing(data, names, style))

        return Answer(data, text, partial)


def examine(found, held, seconds, words=()):
    """-> (the JSON fields, `[sampling.ProcessSamples]`)"""
    seen = sampling.sample(found, held, seconds, words)
    facts = [verdicts.from_samples(s) for s in seen]
    if not any(s.view for s in seen) and not any(f.state in ("Z", "X", "T", "t") for f in facts):
        raise GdbextError("; ".join(dict.fromkeys(s.why for s in seen if s.why)) or "no process could be read")
    said = verdicts.judge(facts)
    by_name = {s.name: s for s in seen}
    nodes = nodes_of([s.view for s in seen if s.view])

    def culprit(node):
        if node in nodes:
            return place(*nodes[node])
        s = by_name.get(node[0])
        return {"host": os.uname().nodename, "label": escape(node[0]), "pid": s.pid if s is not None else None}

    data = {
        "verdict": said.kind,
        "culprits": [culprit(n) for n in said.culprits],
        "evidence": [escape(e) for e in said.evidence],
        "victims": [escape(v) for v in said.victims],
        "meaning": MEANING[said.kind],
        "ranks_read": sum(s.view is not None for s in seen),
        "ranks_total": len(seen),
        "pauses": snapshots.pauses([s.snapshot for s in seen]),
        "failed": [{"label": s.name, "pid": s.pid, "reason": s.why} for s in seen if s.view is None],
    }
    return data, seen


def verdict_lines(data, style, nodes):
    good = data["verdict"] in ("busy", "idle")
    lines = [style.title((style.good if good else style.bad)(data["verdict"])) + ": " + data["meaning"]]
    culprits = []
    for c in data["culprits"]:
        view_node = (c["label"], c.get("tid"))
        culprits.append(
            node_text(view_node, nodes)
            if c.get("tid")
            else f"{c['label']}" + (f" (pid {c['pid']})" if c["pid"] and str(c["pid"]) != c["label"] else "")
        )
    if culprits:
        word = "who" if good else "culprit" if len(culprits) == 1 else "culprits"
        lines.append(f"{word}: {style.name('; '.join(culprits))}")
    lines += ["  " + e for e in data["evidence"]]
    if data["victims"]:
        lines.append("victims: " + ", ".join(data["victims"]))
    return lines
