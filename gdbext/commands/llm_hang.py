"""llm-hang: why it hangs, with evidence, or that there is not enough."""

from __future__ import annotations

import os
from typing import Any

from .. import __version__
from ..api import choosing
from ..api.verdicts import Verdict, judged
from ..session import nodes as nodes_of_session
from ..session.command import Answer, Args, Command, Option, UsageError
from ..session.session import Session
from ..stacks import snapshots
from ..verdict import examine as examining
from ..verdict import exchange


class LlmHang(Command):
    """Say why processes hang: one verdict, its culprits and the evidence, or that what can be seen does not tell.

    Watches all of them for a second without stopping them (CPU clocks, states, Python stacks, who holds the GIL), then copies
    each in a pause of milliseconds; every process runs on. Reads stacks, locks (those between processes too), the GIL,
    collectives and how many of them each rank has begun (torch's groups, NCCL's communicators), vLLM's rings in shared memory;
    compares the ranks with one another, and names as culprit who blocks the others by itself, as victims those who only wait.

      (gdb) llm-hang all
      collective: ranks wait in a collective for others that are not there
      culprit: TP3 4245 MainThread
        TP0-2 wait in all_reduce, called from forward (llama.py:212)
        TP3 has not come to it: TP3 thread 4245 (MainThread) is in throttle (limits.py:17), 0 % CPU
      victims: TP0, TP1, TP2

    Verdicts: lock-cycle, lock-held, gil, collective, kernel (a device kernel), livelock, loop-blocked, dead-thread,
    uninterruptible (blocked in the kernel, state D), stuck-requests, thrash, orphaned, starved, busy, idle, frozen, stopped,
    crashed, startup, unknown. "unknown" is an answer: llm-stacks and llm-locks then show what was read. WHAT as for llm-stacks;
    of several machines (ssh:A ssh:B, pods/NS/app=x, slurm:JOB, ray:) there is one verdict."""

    name = "llm-hang"
    copies = 1
    tool = "why"
    group = "hang"
    operand = "[WHAT...]"
    completion = "what"
    takes_target = False
    standalone = True
    options = (
        Option("wait", "float", "seconds to watch before the stop; longer than one step of a slow engine", 1.0, "S"),
        Option(
            "facts",
            help="what was seen instead of a verdict: what one judge over several machines asks each of",
            for_agents=False,
        ),
    )
    node_words = ("--facts",)  # what each of several machines is asked with (session/nodes.py)

    def run(self, session: Session, args: Args) -> Answer:
        if not 0 <= args.wait <= 600:
            raise UsageError("llm-hang: -wait is 0 to 600 seconds")
        asked = choosing.resolve_processes(session, args.operand_text)
        if args.facts:
            nodes_of_session.all_are_ready()
            return self._facts(examining.examine(asked, session.targets, args.wait, alone=True))
        verdict = judged(asked, session.targets, args.wait)
        return Answer(verdict.data, verdict.text, verdict.partial)

    @staticmethod
    def _facts(found: examining.Examination) -> Answer:
        facts = exchange.facts_data(found.seen, found.sides, os.uname().nodename, __version__)
        facts["pauses"] = snapshots.pauses([s.snapshot for s in found.seen if s.snapshot is not None])
        return Answer({"facts": facts}, lambda style: f"{len(found.seen)} processes; -json has the facts")

    def merge(self, args: Args, answers: list[tuple[str, Any]], failed: list[dict[str, Any]]) -> Answer:
        """One verdict on the facts of several machines (session/nodes.py), `(node, answer)` each."""
        verdict = Verdict.of_machines(answers, failed)
        return Answer(verdict.data, verdict.text, verdict.partial)
