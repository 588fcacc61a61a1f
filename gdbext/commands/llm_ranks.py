"""llm-ranks: the engine processes of this machine."""

from __future__ import annotations

from typing import Any

from ..answers import ranks as answers
from ..engines import discover, routers
from ..engines.registry import SPECS, displayed
from ..errors import NotFoundError
from ..render.text import escape
from ..session.command import Answer, Command, Option, UsageError


def _summary(ranks: Any, looked: Any) -> str:
    """One line per engine on the machine: what there is of it."""
    lines = []
    for family in dict.fromkeys(r.family for r in ranks):
        group = [r for r in ranks if r.family == family]
        shards = [r for r in group if r.runs_model and "fork" not in r.marks]
        words = [f"{SPECS[group[0].engine].display}: {len(group)} process{'es' if len(group) != 1 else ''}"]
        if shards:
            sizes: dict[str, int] = {}
            for rank in shards:
                for name, number in rank.ranks.items():
                    if name not in ("world", "local"):
                        sizes[name] = max(sizes.get(name, 0), rank.sizes.get(name, 0), number + 1)
            groups = ", ".join(f"{g.upper()} {n}" for g, n in sizes.items() if n > 1)
            words.append(f"{len(shards)} rank{'s' if len(shards) != 1 else ''} here" + (f" ({groups})" if groups else ""))
        if group[0].instance is not None and group[0].instance.line():
            words.append(f"{escape(group[0].instance.name)}: {escape(group[0].instance.line())}")
        for mark in ("orphan", "stopped", "zombie", "crashed"):
            count = sum(mark in r.marks for r in group)
            if count:
                words.append(f"{count} {mark}")
        lines.append(", ".join(words))
    return "\n".join(lines + [f"{looked} processes read"])


class LlmRanks(Command):
    __doc__ = f"""List the inference engines' processes on this machine, with the rank of each, without attaching.

    Knows {displayed()} by process titles, command lines, relatives, environment and loaded
    libraries. Where those leave a doubt, and with -verify for every process, the rank that Python itself holds is read through
    /proc without stopping anything; it wins over the title, and a disagreement is noted.

    Example:
      (gdb) llm-ranks
      #  label       engine  role           pid  parent  GPUs  state     thr      RSS    CPU    age
      0  frontend    vllm    frontend     41210   40021        sleeping    8  1.1 GiB  9.41 s  2m05s
      1  EngineCore  vllm    engine-core  41377   41210        sleeping   17  0.6 GiB  5.20 s  1m58s
      2  TP0         vllm    worker       41500   41377  0     running    47  1.7 GiB  1m41s  1m51s
      3  TP1         vllm    worker       41501   41377  1     running    47  1.7 GiB  1m40s  1m51s

    Other commands take the number (#), the label or the pid: llm-attach TP0, pybt -on 2. A pid shown as 812 (ns 7) is 7 in its
    container. Labels that two engines have are told apart by their instance: decode:TP0, :8100:TP0; decode, :8100 or an engine
    id name all processes of one. orphan: its parent is gone. stopped: it does not run; a debugger that was killed
    leaves that behind. user: whose it is, where it is not yours: anybody may give a process the title of a rank.

    With pids: the processes of their engines. WHERE is other machines (ssh:A ssh:B, pods/NS/app=x, slurm:JOB, ray:): their
    processes are one list, with the machine of each, and ranks that none of them has are named.
    """

    name = "llm-ranks"
    tool = "ranks"
    group = "ranks"
    options = (
        Option("engine", sorted(SPECS), "only this engine", metavar="E"),
        Option("verify", help="read each rank from the process's memory too"),
    )
    operand = "[PID... | WHERE...]"
    completion = "what"
    takes_target = False
    standalone = True
    fields = answers.ANSWER

    def run(self, session: Any, args: Any) -> Answer:
        pids = args.operand_text.replace(",", " ").split()
        if not all(word.isascii() and word.isdecimal() for word in pids):
            raise UsageError("llm-ranks: takes pids, or other machines, such as ssh:gpu17 or pod/NS/NAME; without any, this one")
        ranks, partial, looked = discover.survey(engine=args.engine, verify=args.verify)
        if pids:
            families = {rank.family for rank in ranks if str(rank.pid) in pids}
            others = [pid for pid in pids if not any(str(rank.pid) == pid for rank in ranks)]
            if others:
                raise NotFoundError(
                    f"{', '.join(others)}: of no engine here; engine processes that run: {len(ranks)} (llm-ranks)"
                )
        for rank in ranks:
            rank.inferior = session.inferior_of(rank.pid)
        session.ranks = ranks
        if pids:
            ranks = [rank for rank in ranks if rank.family in families]
        found = discover.find_routers(ranks) if args.engine is None else []
        told = [answers.RANK.data(r) for r in ranks]
        missing = answers.missing(told)
        data = {"ranks": told, "processes": looked, "routers": found, "missing": missing}

        def text(style: Any) -> str:
            said = "".join(escape(line) + "\n" for line in routers.lines(found))
            said += "".join(answers.missing_line(one) + "\n" for one in missing)
            if not ranks:
                return f"{said}no engine processes found ({looked} processes read)"
            return answers.table(told, style) + f"\n{said}" + _summary(ranks, looked)

        return Answer(data, text, partial).about(r.pid for r in ranks)

    def merge(self, args: Any, found: list[tuple[str, Any]], failed: list[dict[str, Any]]) -> Answer:
        """The processes of several machines (session/nodes.py), `(node, answer)` each."""
        data, partial = answers.merged(found, failed)
        return Answer(data, lambda style: "\n".join(answers.lines(data, style)), partial)
