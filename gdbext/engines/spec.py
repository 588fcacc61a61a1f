"""The interface of an engine for the other rooms: `EngineSpec`, which each engine's folder fills in.

A spec is data and the little code that recognises the engine's processes. Every gdb that loads the pack reads all specs. So
patterns are text, compiled at their first use (`re` keeps them), and readers of memory are loaded at their first use.
"""

from __future__ import annotations

import importlib
import re
from collections import namedtuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Iterable, Mapping, Sequence

    from ..access.proctable import Process
    from ..cpython.runtime import Runtime
    from .instances import Instance, Spread, Words
    from .rank import Rank

Rings = namedtuple("Rings", "holders within broadcast")
Rings.__doc__ = """Where processes keep the ends of rings in shared memory (`shm_rings`). `holders`: attributes of a frame's
`self` that hold queues; `within`: attributes of that `self` whose own attributes are looked at too; `broadcast`: the holder
through which work is handed out."""

Profiler = namedtuple("Profiler", "variable option default hint fields", defaults=({},))
Profiler.__doc__ = """Where an engine's own profiler puts its traces. `variable`: of the environment; `option`: part of the
command line ('' for none); `default`: the folder where neither says one; `hint`: what turns the profiler's end point on, for
people; `fields`: {option of llm-profile: the field of the end point's JSON that it fills}, for those that the end point
takes."""

Presets = namedtuple("Presets", "step request oom nan")
Presets.__doc__ = """Where an engine schedules, finishes and samples: what `llm-break step|request|oom|nan` stops at. `step`:
`[FUNCTION]`; `request`: `[(FUNCTION, expression of the list of ids of the requests that come by)]`; `oom`: (exception of a
device that is full, `[FUNCTION]` where the engine takes blocks back from a request, which a release may lack); `nan`:
`[(FUNCTION, expression of a tensor)]`, or `[(FUNCTION, expression, MODULE)]` where it is a place only in processes that have
imported that module."""


# Ends of the paths of files that communicate between ranks in vLLM, and in engines that took them over from it.
COMMUNICATORS = (
    "parallel_state.py",
    "pynccl.py",
    "custom_all_reduce.py",
    "quick_all_reduce.py",
    "cpu_communicator.py",
    "cuda_communicator.py",
    "pymscclpp.py",
)


class Match:
    """The facts from a title or a command line.

    * `role`: "frontend", "api-server", "engine-core", "scheduler", "worker", "rank", "detokenizer", "coordinator", or "child" of
      which only its parent is known (`SCHEDULERS` schedule)
    * `ranks`: by group
    * `unconfirmed`: why the memory should be read, or ''
    * `prefix`: of the title
    * `name`: the label where it is not made from role and ranks
    * `needs_libraries`: the match counts only if the process has the engine's libraries mapped"""

    def __init__(
        self,
        role: str,
        ranks: Mapping[str, int] | None = None,
        unconfirmed: str = "",
        prefix: str = "",
        name: str = "",
        needs_libraries: bool = False,
    ) -> None:
        self.role, self.ranks, self.unconfirmed, self.prefix, self.name = role, dict(ranks or {}), unconfirmed, prefix, name
        self.needs_libraries = needs_libraries


class Memory:
    """The facts from a process's Python objects: `role` (or ''), `ranks`, `sizes`."""

    def __init__(self, role: str = "", ranks: Mapping[str, int] | None = None, sizes: Mapping[str, int] | None = None) -> None:
        self.role, self.ranks, self.sizes = role, dict(ranks or {}), dict(sizes or {})


SCHEDULERS = ("engine-core", "scheduler")


class EngineSpec:
    """One engine. Subclasses hold data and the little code that recognising their engine needs; every field has a meaning when
    empty."""

    name: str = ""  # in answers: "vllm"
    display: str = ""  # for people: "vLLM"
    packages: tuple[str, ...] = ()  # Python packages; a process that has imported one is the engine's
    serves: bool = True  # it answers requests; the processes of a job that serves none are judged as any others
    unproven: bool = False  # what is known of it was never tried on the engine itself; each answer that names it says so

    # ---- which processes are its ----
    libraries: str = ""  # pattern of mapped files that only this engine has: for processes without a title
    zombies: tuple[tuple[str, str], ...] = ()  # (start of a zombie's comm, role): titles cut to 15 bytes, all that a zombie keeps
    environ_ranks: tuple[tuple[str, tuple[str, ...]], ...] = ()  # (group, names of variables), tried in order
    parent_roles: dict[str, str] = {}  # role of a child -> role of its Python parent when there is no other evidence of that
    prefixes: tuple[str, ...] = ("",)  # of titles, that need no second witness

    # ---- places of its processes: names of functions, as patterns of the last part of a qualified name ----
    resting: dict[str, str] = {}  # role -> functions in which a process of that role waits for work
    starting: str = ""  # functions in which a process starts up
    answering: str = ""  # functions in which a process waits for another one's answer
    collective_files: tuple[str, ...] = ()  # ends of the paths of files whose functions communicate with other ranks
    spins: tuple[tuple[str, str], ...] = ()  # (function, end of its file's path) that poll in a loop until another rank arrives
    rings: Rings | None = None
    reporting: tuple[tuple[str, str], ...] = ()  # (end of its file's path, function) that catch all exceptions, to report them

    # ---- its HTTP endpoints ----
    port: int = 0  # on which its server listens by default
    metrics: str = ""  # pattern of the metrics that count requests

    # ---- its data for llm-kv, llm-requests, llm-break, llm-profile, llm-kernels ----
    kv_module: str = ""  # of its folder: the reader of its KV cache
    kv_releases: str = ""  # the releases whose KV cache was read, in words
    kv_newest: tuple[int, ...] = ()  # the newest of them
    kv_classes: tuple[str, ...] = ()  # C++ engines: classes whose methods' frames lead to the cache ...
    kv_types: tuple[str, ...] = ()  # ... and full names of types that its debug information has
    asking: dict[
        tuple[str, str], str
    ] = {}  # (end of a file's path, function) that has the ids of its requests: in which variable
    goes_in_step: bool = False  # its data-parallel ranks may go in step, and its coordinator knows how far they are
    requests_module: str = ""  # of its folder: the module that reads where a request is in each of its processes
    grammar_module: str = ""  # of its folder: the module that reads the grammar that a request's answer must follow
    sensitive: frozenset[str] = frozenset()  # names under which it keeps users' prompts and tokens
    presets: Presets | None = None
    profiler: Profiler | None = None
    compile_marks: tuple[str, ...] = ()  # attributes of a module that are False where the engine compiles its calls
    eager: str = ""  # the option to start it with so that each module is called from Python
    kernels: str = ""  # its word in the catalogue of kernels, where it has some of its own in Triton

    # ---- recognising ----
    def match_title(self, title: str) -> Match | None:
        """`Match` for a process whose whole command line is `title`, or None."""
        return None

    def match_argv(self, kind: str, text: str, arguments: list[str]) -> Match | None:
        """`Match` for a Python that runs `kind` ("module", "code", "script") `text` with `arguments`, or None."""
        return None

    def match_environ(self, process: Process) -> Match | None:
        """`Match` for a large Python of which nothing else speaks, by its environment and libraries, or None."""
        return None

    def meets_at(self, process: Process) -> str:
        """What the environment of all processes of one job says alike, and of no other job; '' where it says nothing."""
        return ""

    def match_child(self, parent: Rank, process: Process) -> Match | None:
        """`Match` for a Python child (spawned or forked, without title) of the Rank `parent`, or None."""
        return None

    def match_dead_child(self, parent: Rank, process: Process) -> Match | None:
        """`Match` for a child that has ended, by the 15 bytes of its title that the kernel keeps, or None."""
        return None

    def match_untitled_child(self, parent: Rank, process: Process) -> Match | None:
        """`match_child` of the engines that never set titles: any child that their server spawned or forked."""
        if parent.role in ("frontend", "api-server") and (process.is_spawned or process.cmdline == parent.process.cmdline):
            return Match("child", {}, "no title")
        return None

    def inherits_title(self, rank: Rank) -> bool:
        """Corrects a `rank` that has exactly the title of its parent, which forked it. False: it is only a fork."""
        return False

    def infer_order(self, ranks: Sequence[Rank]) -> None:
        """Fills in the ranks of processes without titles where their order of start and the command line prove them."""

    def infer_world(self, ranks: Sequence[Rank]) -> None:
        """Fills in `world` where titles or the environment prove it."""

    def describe_instance(self, found: Instance, words: Words, environ: Mapping[str, str]) -> None:
        """Fills in the facts about an instance from the command line and the environment of its server."""
        found.ports["http"] = words.port("--port") or self.port
        found.serves = words.text("--served-model-name") or words.text("--model", "--model-path")

    def spread(self, arguments: Sequence[str]) -> Spread | None:
        """Where the command line of its server puts its ranks; None where all are to be on this machine, or that is not said."""
        return None

    def ranks_in_memory(self, runtime: Runtime, rank: Rank) -> Memory | None:
        """The facts from Python's own objects; None: this is no such engine. `GdbextError` when they cannot be read."""
        return None

    # ---- places of its processes ----
    def rests_in(self, role: str, function: str) -> bool:
        """Whether a process of that role is idle when it is in `function` (a qualified name)."""
        return named(self.resting.get(role, ""), function)

    def starts_in(self, function: str) -> bool:
        """Whether a process in `function` is starting up."""
        return named(self.starting, function)

    def waits_for_answer_in(self, function: str) -> bool:
        """Whether a process in `function` waits for the answer of another process of the engine."""
        return named(self.answering, function)

    def owns(self, file: str) -> bool:
        """Whether a source file is one of the engine's own packages."""
        path = file.replace("\\", "/")
        return any(f"/{package}/" in path for package in self.packages)

    # ---- readers, loaded at the first use ----
    @property
    def kv(self) -> ModuleType | None:
        """The module that reads the engine's KV cache, or None.

        For a Python engine it has:

        * `find_scheduler(rt)`
        * `read(rt, scheduler, content)` -> `Cache`, whose `pools` are [] where the engine has requests and no blocks
        * `read_worker(rt, label, num_blocks)` -> `Worker`
        * `find_model(rt)` -> the model that the process calls, or None; optional
        * `STEP_COUNTER`: the attribute of a scheduler that counts its steps; optional
        * `fill(rt, scheduler, requests)` -> `Cache` of requests that its `requests` read just now; optional
        * `sampling_row(rt, request_id)` -> {name: value} that decide how a request's next token is drawn, or None; where workers
          keep requests by rows

        For a C++ engine (`kv_classes`) it has `read(found)`."""
        return self._module(self.kv_module)

    @property
    def requests(self) -> Any:
        """The module that reads where the engine's requests are, or None. It has `look(rt, rank)` -> `sightings.Look`. Without
        one its requests are those of `kv`."""
        return self._module(self.requests_module)

    @property
    def grammar(self) -> Any:
        """The reader of requests' grammars, or None: a module with `read(rt, request)` -> `grammars.Grammar`, None for a request
        without."""
        return self._module(self.grammar_module)

    def _module(self, name: str) -> ModuleType | None:
        return importlib.import_module(f"{type(self).__module__.rpartition('.')[0]}.{name}") if name else None


def named(pattern: str, function: str) -> bool:
    """Whether the last part of a qualified name matches a pattern; nothing matches the empty one."""
    return bool(pattern) and re.fullmatch(pattern, (function or "").rpartition(".")[2]) is not None


def argument(arguments: Sequence[str], *names: str) -> int | None:
    """The integer value of `--name N` or `--name=N` in `arguments`, or None."""
    for i, word in enumerate(arguments):
        name, _, value = word.partition("=")
        if name in names:
            value = value or (arguments[i + 1] if i + 1 < len(arguments) else "")
            return int(value) if re.fullmatch("[0-9]{1,6}", value) else None
    return None


def environ_ranks(spec: EngineSpec, environ: Mapping[str, str]) -> dict[str, int]:
    """Ranks that environment variables give, by `spec.environ_ranks`; only plain numbers count."""
    ranks = {}
    for group, names in spec.environ_ranks:
        for name in names:
            if re.fullmatch("[0-9]{1,6}", environ.get(name, "")):
                ranks[group] = int(environ[name])
                break
    return ranks


def environ_names(spec: EngineSpec) -> list[str]:
    """The names of all variables that give `spec` a rank."""
    return [name for _, names in spec.environ_ranks for name in names]


def words(text: str) -> frozenset[str]:
    """The words of a text, for a table of names."""
    return frozenset(text.split())


def joined(patterns: Iterable[str]) -> str:
    """One pattern of several, the empty ones left out."""
    return "|".join(p for p in patterns if p)
