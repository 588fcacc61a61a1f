"""What every engine module builds on: a `Rank`, its label, the interface of an engine's recogniser, and `Engine`, several
Targets by label. No gdb here; recognising reads /proc only, and memory only through the runtime that it is handed."""

import os
import re

from ..access.proc import ProcTarget
from ..errors import GdbextError, NotFoundError

# Groups that multiply the number of ranks, in the order of vLLM's titles; the others divide one of these and come last.
MULTIPLYING = ("dp", "pp", "pcp", "tp")
DIVIDING = ("attn_cp", "moe_dp", "dcp", "ep", "moe_tp", "attn_tp")
MAX_RANK = 1 << 20  # a larger one is nonsense out of hostile memory
MAX_NAMES = 1 << 14  # of a module or an environment

STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "in the kernel",
    "T": "stopped",
    "t": "traced",
    "Z": "zombie",
    "X": "dead",
    "I": "idle",
    "W": "waking",
    "P": "parked",
}


class Match:
    """What a title or a command line tells: `role`, `ranks` by group, `doubt` ('' or why the memory should be asked), `prefix`
    of the title, `name`: the label where it is not made from role and ranks, `needs_libraries`: it counts only with the
    engine's mapped.
    """

    def __init__(self, role, ranks=None, doubt="", prefix="", name="", needs_libraries=False):
        self.role, self.ranks, self.doubt, self.prefix, self.name = role, dict(ranks or {}), doubt, prefix, name
        self.needs_libraries = needs_libraries


class Rank:
    """One engine process.

    `ranks`: rank by group (`world` the global one, `tp pp dp ep pcp dcp ...`); a group that is not there is absent. `sizes`:
    group sizes, where memory told. `rank_source`: what role and ranks rest on: "title", "memory", "environ", "argv" (its own, or
    order of start and a parent's), "tree" (a parent or child of the engine), "libraries" or "comm". `marks`: what is wrong with
    it: "orphan", "stopped", "zombie", "crashed", "fork". `notes`: sentences for people. `inferior` is filled in by the command.
    """

    def __init__(self, process, engine, match, source):
        self.process, self.engine, self.role = process, engine, match.role
        self.ranks, self.sizes, self.prefix, self.doubt, self.name = dict(match.ranks), {}, match.prefix, match.doubt, match.name
        self.rank_source = self.origin = source  # `origin` stays when memory is asked
        self.parts = dict(match.ranks)  # what its label is made of
        self.marks, self.notes = [], []
        self.index, self.label, self.inferior, self.family = None, "", None, None
        self.aliases = []
        self.replica = None  # data-parallel index of its engine core, for workers whose own title has none (dense models)
        self.parent = None  # the Rank that started it, where that is one
        self.title_is_comm = True  # setproctitle sets both
        self.from_libraries = False  # nothing but its mapped libraries speaks for it

    pid = property(lambda self: self.process.pid)
    ppid = property(lambda self: self.process.ppid)
    ns_pid = property(lambda self: self.process.ns_pid)
    state = property(lambda self: self.process.state)
    orphan = property(lambda self: "orphan" in self.marks)
    stopped = property(lambda self: "stopped" in self.marks)
    zombie = property(lambda self: "zombie" in self.marks)

    def __repr__(self):
        return f"Rank({self.label or self.role}, {self.engine}, pid {self.pid})"

    @property
    def unreadable(self):
        return sorted(set(self.process.unreadable))

    @property
    def runs_model(self):
        """Whether it is one of the processes that hold a model's shard, as far as its role tells."""
        return self.role in ("worker", "scheduler", "rank")

    def mark(self, word, note=""):
        if word not in self.marks:
            self.marks.append(word)
        if note:
            self.note(note)

    def note(self, text):
        if text not in self.notes:
            self.notes.append(text)

    def pid_text(self):
        """`1234`, or `1234 (ns 7)` for a process in a container."""
        return str(self.pid) if self.ns_pid == self.pid else f"{self.pid} (ns {self.ns_pid})"

    def data(self, host=None):
        """The contract's fields of one rank."""
        p = self.process
        return {
            "index": self.index,
            "engine": self.engine,
            "role": self.role,
            "label": self.label,
            "ranks": self.ranks,
            "sizes": self.sizes,
            "rank_source": self.rank_source,
            "host": host or os.uname().nodename,
            "pid": p.pid,
            "ns_pid": p.ns_pid,
            "ppid": p.ppid,
            "title": p.command,
            "comm": p.comm,
            "state": p.state,
            "state_text": STATES.get(p.state, p.state),
            "threads": p.threads,
            "rss": p.rss,
            "cpu": round(p.cpu, 2),
            "age": None if p.age is None else round(p.age, 2),
            "gpus": p.gpus,
            "orphan": self.orphan,
            "marks": self.marks,
            "inferior": self.inferior,
            "notes": self.notes,
            "unreadable": self.unreadable,
        }


# ---- labels ----------------------------------------------------------------------------------------------------------
_ROLE_LABELS = {
    "engine-core": "EngineCore",
    "worker": "Worker",
    "scheduler": "scheduler",
    "detokenizer": "detokenizer",
    "api-server": "server",
    "frontend": "frontend",
    "coordinator": "DPCoordinator",
}


def rank_label(rank):
    """The label from role and ranks alone: `TP0`, `DP1.TP3`, `EngineCore.DP1`, `scheduler`.

    A process that holds a shard is named by the groups that multiply ranks; EP, DCP and the like only divide them and
    name it only where nothing else does. Groups known to have one member name nothing.
    """
    shown = {g: r for g, r in rank.parts.items() if rank.sizes.get(g, 2) > 1}
    if rank.replica is not None:
        shown.setdefault("dp", rank.replica)
    if rank.runs_model and not rank.name:
        for order in (MULTIPLYING, DIVIDING):
            words = [f"{g.upper()}{shown[g]}" for g in order if g in shown]
            if words:
                return ".".join(words)
    base = rank.name or _ROLE_LABELS.get(rank.role, rank.role)
    return f"{base}.DP{shown['dp']}" if "dp" in shown and not rank.name else base


def set_labels(ranks):
    """Fills `label` and `aliases` of one engine's processes in; equal labels get `#2`, `#3` in order of start."""
    seen = {}
    for rank in sorted(ranks, key=lambda r: ("fork" in r.marks, "zombie" in r.marks, r.process.started, r.pid)):
        label = rank_label(rank)
        if "fork" in rank.marks:
            label += ".fork"
        seen[label.lower()] = count = seen.get(label.lower(), 0) + 1
        rank.label = label if count == 1 else f"{label}#{count}"
    shards = [r for r in ranks if r.runs_model and "fork" not in r.marks]
    lone = shards or [r for r in ranks if r.role == "engine-core"]
    if len(lone) == 1 and not (set(lone[0].parts) - {"world"}):
        lone[0].aliases.append("TP0")  # the only shard of an engine without groups


def label_parts(text):
    """`DP1.TP3`, `dp1_tp3` -> `{"dp": 1, "tp": 3}`; {} when it is not such a label."""
    parts = {}
    for word in re.split(r"[._]", text.lower()):
        m = re.fullmatch(r"([a-z]+)([0-9]{1,6})", word)
        if not m or m.group(1) not in MULTIPLYING + DIVIDING or m.group(1) in parts:
            return {}
        parts[m.group(1)] = int(m.group(2))
    return parts


# ---- what an engine's module says of itself ----------------------------------------------------------------------------
class EngineSpec:
    """How one engine is recognised. Subclasses hold data and the little code that their engine needs."""

    name = ""
    display = ""
    libraries = None  # regex of mapped files that only this engine has: for processes without a title
    zombies = ()  # (start of a zombie's comm, role): titles cut to 15 bytes, all that a zombie keeps
    environ_ranks = ()  # (group, names of variables), tried in order
    parent_roles = {}  # role of a child -> role of its Python parent when nothing else names that one

    def titled(self, title):
        """`Match` for a process whose whole command line is `title`, or None."""
        return None

    def argued(self, kind, text, arguments):
        """`Match` for a Python that runs `kind` ("module", "code", "script") `text` with `arguments`, or None."""
        return None

    def child(self, parent, process):
        """`Match` for a Python child (spawned or forked, without title) of the Rank `parent`, or None."""
        return None

    def untitled_child(self, parent, process):
        """`child` of the engines that never set titles: whatever their server spawned or forked."""
        if parent.role in ("frontend", "api-server") and (process.is_spawned or process.cmdline == parent.process.cmdline):
            return Match("child", {}, "no title")
        return None

    def order(self, ranks):
        """Ranks of one engine without titles: fill in what their order of start and the command line prove."""

    def world(self, ranks):
        """Fills in `world` where titles prove it."""

    def memory(self, runtime, rank):
        """-> `Memory`: what Python's own objects say. `GdbextError` when they cannot be read; None: this is no such engine."""
        return None


class Memory:
    """What a process's Python objects say: `role` (or ''), `ranks`, `sizes`."""

    def __init__(self, role="", ranks=None, sizes=None):
        self.role, self.ranks, self.sizes = role, dict(ranks or {}), dict(sizes or {})


def checked_rank(value):
    """An int out of a process as a rank; `GdbextError` for nonsense."""
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value < MAX_RANK:
        raise GdbextError(f"{value!r} is no rank")
    return value


def group_ranks(runtime, module, names):
    """`names`: `{global: group}`. -> (ranks, sizes) of the GroupCoordinators that `module` holds, or None without the module.

    vLLM and SGLang share the class (vllm/distributed/parallel_state.py): `.rank` is the global rank, `.rank_in_group` and
    `.world_size` the group's; SGLang took the file over from vLLM.
    """
    scope = runtime.module(module)
    if scope is None:
        return None
    bounded(scope)
    ranks, sizes = {}, {}
    for name, group in names.items():
        try:
            coordinator = scope.item(name)
        except NotFoundError:
            continue
        if coordinator.type_name == "NoneType":
            continue
        rank = _integer(coordinator, "rank" if group == "world" else "rank_in_group")
        if rank < 0:
            continue  # this process is not in that group
        ranks[group], sizes[group] = rank, _integer(coordinator, "world_size")
        if rank >= sizes[group]:
            raise GdbextError(f"rank {rank} of a group of {sizes[group]} ({name}) is nonsense")
    return ranks, sizes


def bounded(scope):
    """`scope`, a dict that is looked through name by name; `GdbextError` for one that no module has."""
    if scope.len() > MAX_NAMES:
        raise GdbextError(f"a module with {scope.len()} names is nonsense")
    return scope


def _integer(owner, name):
    value = owner.attr(name)
    if not hasattr(value, "integer"):
        raise GdbextError(f"{name} of the {owner.type_name} is no int")
    return checked_rank(value.integer(max_digits=2))


def outer_frame(runtime, functions):
    """The outermost frame of any thread whose function's last name part is in `functions`, or None."""
    for thread in runtime.threads()[:256]:
        for frame in reversed(runtime.frames(thread)):
            if frame.function.rpartition(".")[2] in functions:
                return frame
    return None


def frame_local(frame, *names):
    """The Object at `names[0]` of the frame's locals, or at its attribute `names[1]`, and so on; `GdbextError` when it is not
    there."""
    value = dict(frame.locals()).get(names[0])
    for name in names[1:]:
        value = value.attr(name) if hasattr(value, "attr") else None
    if not hasattr(value, "attr"):
        raise GdbextError(f"{'.'.join(names)} of {frame.function} is not set")
    return value


def memory_environ(runtime, names):
    """`{name: text}` of those variables in `os.environ` as Python holds it (bytes keys and values in `_data`)."""
    scope = runtime.module("os")
    found = {}
    if scope is None:
        return found
    for key, value in bounded(bounded(scope).item("environ").attr("_data")).items():
        try:
            name = key.raw_bytes(64).decode("ascii", "replace")
            if name in names:
                found[name] = value.raw_bytes(64).decode("ascii", "replace")
        except GdbextError:
            continue
    return found


def environ_ranks(spec, environ):
    """Ranks that environment variables give, by `spec.environ_ranks`; only plain numbers count."""
    ranks = {}
    for group, names in spec.environ_ranks:
        for name in names:
            if re.fullmatch("[0-9]{1,6}", environ.get(name, "")):
                ranks[group] = int(environ[name])
                break
    return ranks


# ---- several processes as one ------------------------------------------------------------------------------------------
class Engine:
    """The processes of one engine, by label. `attached(rank)` gives the Target of a rank that the debugger holds, or None;
    every other one is read through /proc without stopping it, and `unstopped` then names it."""

    def __init__(self, ranks, attached=None):
        self.ranks = list(ranks)
        self.name = self.ranks[0].engine if self.ranks else ""
        self._attached = attached or (lambda rank: None)
        self._targets, self.unstopped = {}, []

    def labels(self):
        return [r.label for r in self.ranks]

    def rank(self, label):
        found = [r for r in self.ranks if r.label.lower() == label.lower()]
        if not found:
            raise NotFoundError(f"no process {label} in this engine; it has {', '.join(self.labels()) or 'none'}")
        return found[0]

    def with_role(self, *roles):
        """Its ranks of those roles, by global rank where it is known."""
        found = [r for r in self.ranks if r.role in roles and "fork" not in r.marks and not r.zombie]
        return sorted(found, key=lambda r: (r.ranks.get("world", MAX_RANK), r.index if r.index is not None else 0))

    def shards(self):
        """The processes that hold the model: workers or schedulers; without any, the engine core itself."""
        return self.with_role("worker", "scheduler", "rank") or self.with_role("engine-core")

    def target(self, label):
        """The Target of one process: the debugger's where it is attached, else through /proc."""
        rank = self.rank(label)
        held = self._attached(rank)
        if held is not None:
            return held
        if rank.zombie:
            raise GdbextError(f"{rank.label} (pid {rank.pid}) is a zombie: its memory is gone")
        if rank.label not in self._targets:
            self._targets[rank.label] = ProcTarget(rank.pid, rank.label)
            self.unstopped.append(rank.label)
        return self._targets[rank.label]

    @property
    def partial(self):
        """Reasons for an answer's `partial`."""
        return ["unstopped"] if self.unstopped else []

    def close(self):
        for target in self._targets.values():
            target.close()
        self._targets = {}


def engines_of(ranks, attached=None):
    """One `Engine` per family of processes, in the order of the list."""
    families = {}
    for rank in ranks:
        families.setdefault(rank.family, []).append(rank)
    return [Engine(group, attached) for group in families.values()]
