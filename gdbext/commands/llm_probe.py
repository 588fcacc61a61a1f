"""llm-probe: one line for machines: well, hung, not known, nothing here. It stops nothing."""

from __future__ import annotations

import time
from typing import Sequence

from ..access import stop_nothing
from ..answers.hang import CULPRIT
from ..api import choosing
from ..api.verdicts import Verdict, of_bundles
from ..errors import NotFoundError
from ..render.fields import Field, Fields
from ..session.command import Answer, Args, Command, Option, UsageError
from ..session.session import Session
from ..verdict import examine as examining
from ..verdict.kinds import STATUS

WELL, HUNG, UNKNOWN, NOTHING = 0, 2, 3, 4  # exit statuses; 1 is an error
SAID = {WELL: "well", HUNG: "hung", UNKNOWN: "not known", NOTHING: "nothing here"}
WAIT, BETWEEN = 0.4, 1.0  # seconds of a look, and before the second one


class LlmProbe(Command):
    """Say in one line whether processes are well or hung, for cron, CI and Kubernetes. Nothing is stopped.

    The exit status says it too: 0 well, 2 hung, 3 not known, 4 no such process, 1 an error. Looks once, for 0.4 s; what would
    take longer to be sure of (a device, a disk, a call of a second) is "not known": llm-hang says more. The processes are read
    as they run; -unstopped adds a filter of system calls that makes the command unable to stop one.

      $ gdbext probe
      well: idle: everything waits for work, and nothing is owed
      $ gdbext probe all -liveness
      hung: lock-held: TP1 (4245) holds the Lock self.lock and does not release it, in put (cache.py:31)

    -liveness is for a liveness probe of Kubernetes, which ends the container at any exit status but 0: it is 2 for a hang
    that was seen in two looks a second apart, the same both times, and 0 for all else, with the line that says what it was.
    Allow it 5 seconds (timeoutSeconds). WHAT as for llm-hang; without it all engine processes."""

    name = "llm-probe"
    group = "hang"
    operand = "[WHAT...]"
    completion = "what"
    takes_target = False
    standalone = True
    options = (
        Option("wait", "float", "seconds to watch", WAIT, "S"),
        Option(
            "liveness", help="outside gdb, end with 2 for a hang that was seen twice and with 0 for all else", for_agents=False
        ),
    )
    fields = Fields(
        Field("state", str, "`well`, `hung`, `not known` or `nothing here`"),
        Field("status", int, "the exit status: 0, 2, 3, 4; with `-liveness` 0 or 2"),
        Field("verdict", (str, None), "of llm-hang"),
        Field("why", str, "one sentence"),
        Field("looks", int, "how many looks it rests on"),
        Field("culprits", [CULPRIT]),
    )

    asked: Sequence[int | None] = ()  # pids

    def run(self, session: Session, args: Args) -> Answer:
        if not 0 < args.wait <= 60:
            raise UsageError("llm-probe: -wait is 0 to 60 seconds")
        try:
            status, verdict = self._look(session, args)
        except NotFoundError as e:
            return self._answer(args, NOTHING, None, str(e), 1)
        looks = 1
        if args.liveness and status == HUNG:
            time.sleep(BETWEEN)
            before = _blamed(verdict)
            status, verdict = self._look(session, args)
            looks, status = 2, status if _blamed(verdict) == before and before[1] else UNKNOWN
        return self._answer(args, status, verdict, f"{verdict.kind}: {verdict.sentence}", looks)

    def _look(self, session: Session, args: Args) -> tuple[int, Verdict]:
        """-> (one of the statuses, the verdict) of one look."""
        asked = choosing.resolve_processes(session, args.operand_text, routers=True)
        self.asked = [one.pid for one in asked]
        told = of_bundles(asked)
        if told is not None:
            return STATUS.get(told.kind, HUNG), told
        with stop_nothing.during():
            found = examining.examine(asked, session.targets, args.wait, once=True)
        verdict = Verdict.of(found)
        sure = verdict.kind not in examining.AGAIN and not any(one.again for one in found.verdicts)
        return STATUS.get(verdict.kind, HUNG) if sure else UNKNOWN, verdict

    def _answer(self, args: Args, status: int, verdict: Verdict | None, why: str, looks: int) -> Answer:
        said, kind = SAID[status], verdict.kind if verdict is not None else None
        status = status if status == HUNG or not args.liveness else WELL
        culprits = verdict.data["culprits"] if verdict is not None else []
        data = self.fields.of(state=said, status=status, verdict=kind, why=why, looks=looks, culprits=culprits)
        answer = Answer(data, lambda style: f"{said}: {why.replace('unknown: ', '', 1)}")
        answer.status = status
        return answer.about(self.asked)


def _blamed(verdict: Verdict) -> tuple[str, list[tuple[int | None, int | None]]]:
    """What makes the verdicts of two looks the same."""
    return verdict.kind, sorted((c.get("pid") or 0, c.get("tid") or 0) for c in verdict.data["culprits"])
