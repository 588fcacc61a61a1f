"""llm-hang: why it hangs, with evidence, or that there is not enough."""

from __future__ import annotations

import os
from typing import Any

from .. import __version__
from ..answers.hang import ANSWER
from ..api import choosing
from ..api.verdicts import Verdict, judged
from ..errors import NotFoundError
from ..session import nodes as nodes_of_session
from ..session.command import Answer, Args, Command, Option, UsageError
from ..session.session import Session
from ..stacks import snapshots
from ..verdict import examine as examining
from ..verdict import exchange
from ..verdict.kinds import STATUS

HUNG, NOTHING = 2, 4  # exit statuses


class LlmHang(Command):
    """Say why processes hang: one verdict, its culprits and the evidence, or that what can be seen does not tell.

    Watches all of them for a second without stopping them (CPU clocks, states, Python stacks, who holds the GIL), then copies
    each in a pause of milliseconds; every process runs on. Reads stacks, locks (those between processes too), the GIL,
    collectives and how many of them each rank has begun (torch's groups, NCCL's communicators), vLLM's rings in shared memory;
    compares the ranks with one another, and names as culprit who blocks the others by itself, as victims those who only wait.

      (gdb) llm-hang all
      collective: TP3 (VLLM::Worker_TP3, 4245) has not come to a collective in which others wait, in throttle (limits.py:17)
        TP0-2 wait in all_reduce, called from forward (llama.py:212)
        TP3 has not come to it: TP3 thread 4245 (MainThread) is in throttle (limits.py:17), 0 % CPU
      waits:
        TP3 thread 4245 (MainThread) sleeps: is in throttle (limits.py:17), 0 % CPU
        `- TP0 thread 4242 (MainThread) waits for all_reduce of the group tp (and 2 more like it)
      next: pybt -on TP3 (its Python stacks; stops nothing)

    Verdicts: lock-cycle, lock-held, gil, collective, kernel (a device kernel), livelock, loop-blocked, dead-thread,
    uninterruptible (blocked in the kernel, state D), stuck-requests, thrash, orphaned, starved, busy, idle, frozen, stopped,
    crashed, startup, unknown. "unknown" is an answer: llm-stacks and llm-locks then show what was read. WHAT as for llm-stacks;
    of several machines (ssh:A ssh:B, pods/NS/app=x, slurm:JOB, ray:) there is one verdict."""

    name = "llm-hang"
    copies = 1
    tool = "why"
    group = "hang"
    fields = ANSWER
    operand = "[WHAT...]"
    completion = "what"
    takes_target = False
    standalone = True
    options = (
        Option("wait", "float", "seconds to watch before the stop; longer than one step of a slow engine", 1.0, "S"),
        Option(
            "exit-status",
            help="outside gdb, end with 0: well, 2: hung, 3: not known, 4: no such process, 1: an error",
            for_agents=False,
        ),
        Option(
            "v", help="all of the answer, not one screen: the evidence, the whole tree of waits, the victims", for_agents=False
        ),
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
        try:
            asked = choosing.resolve_processes(session, args.operand_text, routers=True)
        except NotFoundError as e:
            e.status = NOTHING if args.exit_status else None
            raise
        if args.facts:
            nodes_of_session.all_are_ready()
            return self._facts(examining.examine(asked, session.targets, args.wait, alone=True))
        verdict = judged(asked, session.targets, args.wait)
        return self._answer(verdict, args).about(one.pid for one in asked)

    @staticmethod
    def _answer(verdict: Verdict, args: Args) -> Answer:
        answer = Answer(verdict.data, lambda style: verdict.text(style, args.v), verdict.partial)
        answer.status = STATUS.get(verdict.kind, HUNG) if args.exit_status else None
        return answer

    @staticmethod
    def _facts(found: examining.Examination) -> Answer:
        facts = exchange.facts_data(found.seen, found.sides, os.uname().nodename, __version__)
        facts["pauses"] = snapshots.pauses([s.snapshot for s in found.seen if s.snapshot is not None])
        return Answer({"facts": facts}, lambda style: f"{len(found.seen)} processes; -json has the facts")

    def merge(self, args: Args, answers: list[tuple[str, Any]], failed: list[dict[str, Any]]) -> Answer:
        """One verdict on the facts of several machines (session/nodes.py), `(node, answer)` each."""
        return self._answer(Verdict.of_machines(answers, failed), args)
