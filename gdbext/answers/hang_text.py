"""The JSON of llm-hang (`hang.hang_data`) as text: one screen, or all of it."""

from __future__ import annotations

import re
from typing import Any, Collection, Iterator, Sequence

from ..engines import nccl_ras, shm_files
from ..render.text import escape, thread_text
from ..verdict import untraced
from ..verdict.kinds import DOES, MEANING, QUIET
from .ends import ends_lines
from .places import name
from .wait_tree import tree_lines

SCREEN = 24  # lines of the short answer
CULPRITS, EVIDENCE, NEXT, OTHERS = 3, 5, 3, 4  # lines of each part of it
DRAWN = ("lock-cycle", "lock-held", "stopped", "starved", "dead-thread")  # whose evidence the tree of waits has
PURPOSES = {
    "kill -CONT": "lets it run on",
    "pybt": "its Python stacks; stops nothing",
    "llm-stacks": "all stacks",
    "llm-locks": "who has which lock",
}
LOOKED = 8  # processes that a suggested command names


def sentence(kind: str, culprits: Sequence[dict[str, Any]]) -> str:
    """A verdict in one sentence that names program, process and line."""
    if not culprits:
        return MEANING[kind]
    one = culprits[0]
    where = f", in {one['at']}" if one.get("at") else ""
    if len(culprits) == 1 and kind in DOES:
        does = DOES[kind].replace("a lock", one["holds"]) if one.get("holds") else DOES[kind]
        waits = f", where it waits for {one['waits_for']}" if where and one.get("holds") and one.get("waits_for") else ""
        return f"{_who(one)} {does}{where}{waits}"
    if len(culprits) == 1:
        return f"{MEANING[kind]}: {_who(one).rstrip(',')}{where}"
    alone = _of_one_process(culprits)
    named = ([_who({**one, "tid": None, "task": None})] if alone else []) + [_who(c, not alone).rstrip(",") for c in culprits]
    more = f", and {len(named) - LOOKED} more" if len(named) > LOOKED else ""
    return f"{MEANING[kind]}: {', '.join(named[:LOOKED])}{more}"


def _of_one_process(culprits: Sequence[dict[str, Any]]) -> bool:
    """Whether they are threads and tasks of one process."""
    return len({(c.get("node"), c["pid"]) for c in culprits}) == 1 and all(c.get("tid") or c.get("task") for c in culprits)


def _who(c: dict[str, Any], process: bool = True) -> str:
    """`TP0 (serve.py, 4242), thread 4250 (worker),`; a process without a label is called by its program. Without the `process`,
    the rest."""
    if not process:
        return f"task '{c['task']}'" if c.get("task") else _thread(c)
    label, program, pid = str(c["label"]), c.get("program", ""), c["pid"]
    labelled = bool(label) and label != str(pid)
    inside = ", ".join(
        str(part) for part in (program if labelled and program != label else "", pid) if part and f"({part})" not in label
    )
    called = (label if labelled else program or "process") + (f" ({inside})" if inside else "")
    called += f" on {c['node']}" if c.get("node") else ""
    if c.get("task"):
        return f"{called}, task '{c['task']}',"
    if c.get("tid") and c["tid"] != pid:
        return f"{called}, {_thread(c)},"
    return called


def _thread(c: dict[str, Any]) -> str:
    return thread_text(c.get("tid", ""), c.get("name") or "")


def next_steps(data: dict[str, Any], files: Collection[int] = ()) -> list[str]:
    """What to type next. `files`: pids of cores and snapshots, whose numbers are now nobody's or another process's."""
    accused = [(v["verdict"], c) for v in data["verdicts"] for c in v["culprits"] if c["pid"] not in files]
    found = [step for kind, c in accused for step in _step(kind, c)]
    asked = [str(f["pid"]) for f in data["pauses"] if f["pid"] and f["pid"] not in files]
    unread = {end["place"]["pid"] for end in _ends(data["chains"]) if end["state"] == "unknown" and end["place"] is not None}
    more = [str(pid) for pid in sorted(pid for pid in unread if pid) if str(pid) not in asked and not files]
    if more and asked and len(asked) + len(more) <= LOOKED:
        found.append("llm-hang " + " ".join([*asked, *more]))
    hosts = dict.fromkeys(one["address"] for one in data["not_asked_at"])
    if hosts:
        found.append("llm-hang all " + " ".join(f"ssh:{host}" for host in list(hosts)[:LOOKED]))
    if not found and not files and data["verdict"] not in QUIET and (asked or not data["failed"]):
        found += [f"{command} {' '.join(asked[:LOOKED])}".strip() for command in ("llm-stacks", "llm-locks")]
    return list(dict.fromkeys(found))


def _purpose(step: str) -> str:
    return next((f" ({text})" for word, text in PURPOSES.items() if word in step), "")


def _ends(chains: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for chain in chains:
        yield chain["end"]
        yield from chain["end"].get("any_of", ())


def _step(kind: str, c: dict[str, Any]) -> list[str]:
    there = f"ssh {c['node']} " if c.get("node") else ""
    if kind in QUIET or not c["pid"]:
        return []
    if kind == "stopped":
        return [f"{there}kill -CONT {c['pid']}"]
    label = str(c["label"]) + (f"@ssh:{c['node']}" if c.get("node") else "")
    native = c.get("at") and not re.search(r":\d+\)$", str(c["at"]))  # no line of Python: it may be another program
    return [f"llm-stacks {label}" if native else f"pybt -on {label}"] if kind not in ("crashed", "frozen") else []


def hang_lines(data: dict[str, Any], style: Any, verbose: bool = True) -> list[str]:
    """The answer as text: all of it, or where not `verbose` what fits on one screen."""
    lines: list[str] = []
    for number, one in enumerate(data["verdicts"] if verbose else data["verdicts"][: OTHERS + 1]):
        named = len(data["verdicts"]) > 1
        lines += _verdict_lines(one, style, named, verbose, number == 0)
    if len(data["verdicts"]) > OTHERS + 1 and not verbose:
        lines.append(style.dim(f"and {len(data['verdicts']) - OTHERS - 1} groups of processes more (-v)"))
    after = _after(data, style, verbose)
    if data["tree"]:
        room = SCREEN - len(lines) - len(after) - 2  # its title, and how long processes stood
        lines += ["waits:", *tree_lines(data["tree"], style, 0 if verbose else max(room, 4))]
    return lines + after


def _after(data: dict[str, Any], style: Any, verbose: bool) -> list[str]:
    quiet = data["verdict"] in QUIET
    lines = ends_lines(data["ends"], style, True)
    moved = [c for c in data["progress"] if c["before"] != c["after"]]
    if moved and not quiet and (verbose or data["verdict"] == "unknown"):
        lines.append(style.dim("moved meanwhile: " + "; ".join(f"{c['label']}: {c['what']}" for c in moved[:6])))
    for one in data["untraced"]:
        told = untraced.lines(one) + shm_files.lines(one["rings"]) + (nccl_ras.lines(one["ras"]) if one["ras"] else [])
        told = [escape(line) for line in told + untraced.log_lines(one.get("log"))] + _http_lines(one["http"])
        lines += told if verbose else told[:EVIDENCE]
    if data["next"] and not quiet:
        steps = data["next"] if verbose else data["next"][:NEXT]
        lines.append("next: " + "; ".join(style.name(style.typed(step)) + _purpose(step) for step in steps))
    left = list(dict.fromkeys(name for v in data["verdicts"] for name in v["not_asked"]))
    if left:
        lines.append("not looked at: " + ", ".join(left if verbose else left[:LOOKED]) + (", …" if len(left) > LOOKED else ""))
    return lines


def _http_lines(http: dict[str, Any] | None) -> list[str]:
    if http is None:
        return []
    counted = ", ".join(f"{escape(name)} {value:g}" for name, value in http["metrics"].items())
    said = f"  its HTTP server on port {http['port']}: /health {http['health']}"
    said = f"{said}, of a request {http['unread']} bytes were not read" if http.get("unread") else said
    stands = "; no token was counted meanwhile" if http["moved"] is False else ""
    return [said + (f"; {counted}" if counted else "; /metrics counts no requests") + stands]


def _verdict_lines(one: dict[str, Any], style: Any, named: bool, verbose: bool, first: bool) -> list[str]:
    kind, good = one["verdict"], one["verdict"] in QUIET
    who = f"{', '.join(one['group'][:8])}: " if named else ""
    lines = [who + style.title((style.good if good else style.bad)(kind)) + ": " + one["sentence"]]
    if not (verbose or first):
        return lines
    culprits = one["culprits"]
    who = "who" if good else "culprit"
    alone = _of_one_process(culprits)  # the process is in the sentence
    for c in culprits if verbose else culprits[:CULPRITS]:
        blocked = f"; blocked in {c['blocked']}" if c.get("blocked") and not good else ""
        if len(culprits) > 1 or blocked:
            does = [f"{word} {c[key]}" for word, key in (("holds", "holds"), ("waits for", "waits_for")) if c.get(key)]
            at = f" {', '.join(does)}" * (len(culprits) > 1) + (f" in {c['at']}" if c.get("at") else "")
            lines.append(f"{who}: {style.name(_who(c, not alone).rstrip(','))}{at}{blocked}")
    if len(culprits) > CULPRITS and not verbose:
        lines.append(f"and {len(culprits) - CULPRITS} culprits more (-v)")
    lines += ["  " + e for e in (one["evidence"] if verbose else _evidence(one))]
    lasts = one["if_it_lasts"]
    if lasts is not None:
        blamed = "; ".join(name(c) for c in lasts["culprits"])
        lines.append("if it lasts: " + style.title(lasts["verdict"]) + (f", culprit {style.name(blamed)}" if blamed else ""))
    if one["victims"] and verbose:
        lines.append("victims: " + ", ".join(one["victims"]))
    return lines


def _evidence(one: dict[str, Any]) -> list[str]:
    """The evidence that a screen has room for, without what the culprit's line or the tree of waits says."""
    if one["verdict"] in DRAWN:
        return [] if one["culprits"] else list(one["evidence"][-1:])
    lines: list[str] = one["evidence"]
    return (
        lines
        if len(lines) <= EVIDENCE
        else [*lines[: EVIDENCE - 1], f"and {len(lines) - EVIDENCE + 1} lines of evidence more (-v)"]
    )
