"""vLLM: titles of every era (vllm/v1/engine/core.py, v1/executor/multiproc_executor.py, v1/utils.py, v1/engine/coordinator.py,
entrypoints/launchers/dp_supervisor.py, utils/system_utils.py), processes without titles, and the rank that Python itself holds.

0.10.1: `VLLM::DPEngineCore_n`, workers append `_PPp_TPt` to the title they inherited. 0.10.2 on: `VLLM::EngineCore[_DPn]`,
`VLLM::Worker[_DPn][_PPn][_PCPn][_TPn][_DCPn][_EPn]`; the prefix is VLLM_PROCESS_NAME_PREFIX.
"""

import re

from .base import EngineSpec, Match, Memory, checked_rank, frame_local, group_ranks, outer_frame

_N = "[0-9]{1,6}"
_PART = re.compile(f"_(DP|PP|PCP|TP|DCP|EP)({_N})")
_TITLE = re.compile(
    "(?P<prefix>.{1,200}?)::(?:"
    f"(?P<worker>Worker)(?P<parts>(?:_(?:DP|PP|PCP|TP|DCP|EP){_N})*)"
    f"|(?P<core>EngineCore(?:_DP(?P<dp>{_N}))?|DPEngineCore_(?P<olddp>{_N}))(?P<appended>(?:_PP{_N})?(?:_TP{_N})?)"
    f"|APIServer_(?P<api>(?:DP)?{_N})"
    "|(?P<coordinator>DPCoordinator))",
    re.S,
)
_APPENDED = re.compile(f"(?P<base>.*[^_])(?P<appended>(?:_PP{_N})?_TP{_N}|_PP{_N})", re.S)  # 0.10.1 on an untitled parent
_SERVERS = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server", "vllm.entrypoints.grpc_server")
GROUPS = {"_WORLD": "world", "_TP": "tp", "_PP": "pp", "_DP": "dp", "_EP": "ep", "_PCP": "pcp", "_DCP": "dcp"}
# _DCP was added with decode context parallelism; older releases lack the later names, which is no error.


def _parts(text):
    return {group.lower(): int(number) for group, number in _PART.findall(text)}


def argument(arguments, *names):
    """The integer value of `--name N` or `--name=N` in `arguments`, or None."""
    for i, word in enumerate(arguments):
        name, _, value = word.partition("=")
        if name in names:
            value = value or (arguments[i + 1] if i + 1 < len(arguments) else "")
            return int(value) if re.fullmatch(_N, value) else None
    return None


class Vllm(EngineSpec):
    name = "vllm"
    display = "vLLM"
    libraries = re.compile(r"/vllm/(_\w+|vllm_flash_attn/\S+|cumem_allocator)\S*\.so")
    zombies = (
        ("VLLM::EngineCor", "engine-core"),
        ("VLLM::DPEngineC", "engine-core"),
        ("VLLM::Worker", "worker"),
        ("VLLM::DPCoordin", "coordinator"),
        ("VLLM::APIServer", "api-server"),
    )
    environ_ranks = (("world", ("RANK",)), ("local", ("LOCAL_RANK",)))
    parent_roles = {"engine-core": "frontend", "worker": "engine-core", "coordinator": "frontend", "api-server": "frontend"}

    def titled(self, title):
        m = _TITLE.fullmatch(title)
        if not m:
            return None
        prefix = m.group("prefix")
        doubt = "" if prefix == "VLLM" else f"its title begins with {prefix!r}, not VLLM"
        if m.group("worker"):
            return Match("worker", _parts(m.group("parts")), doubt, prefix)
        if m.group("core"):
            dp = m.group("dp") or m.group("olddp")
            ranks = {"dp": int(dp)} if dp else {}
            if m.group("appended"):  # a 0.10.1 worker, forked from the core
                return Match("worker", {**ranks, **_parts(m.group("appended"))}, doubt, prefix)
            return Match("engine-core", ranks, doubt, prefix)
        if m.group("api"):
            api = m.group("api")
            return Match("api-server", {}, doubt, prefix, "APIServer" + ("." if api.startswith("DP") else "") + api)
        return Match("coordinator", {}, doubt, prefix)

    def argued(self, kind, text, arguments):
        if kind == "module" and (
            text in _SERVERS or (text in ("vllm", "vllm.entrypoints.cli.main") and arguments[:1] == ["serve"])
        ):
            return Match("api-server")
        if kind == "script" and text.rpartition("/")[2] == "vllm" and arguments[:1] == ["serve"]:
            return Match("api-server")
        return None

    def child(self, parent, process):
        if process.single:  # forked or spawned by 0.10.1: the inherited title with the ranks appended
            m = _APPENDED.fullmatch(process.title)
            if m and parent.role == "engine-core":
                return Match("worker", _parts(m.group("appended")))
        if process.is_spawned or process.cmdline == parent.process.cmdline:
            if parent.role == "engine-core":
                return Match("worker", {}, "no title")
            if parent.role in ("frontend", "api-server", "child"):
                return Match("child", {}, "no title")
        return None

    def order(self, ranks):
        """Releases without titles start the workers in order of rank (v1/executor/multiproc_executor.py: `for rank in
        range(self.world_size)`); V0's driver is rank 0 itself and starts the others. Believed when the count is what argv says.
        """
        for top in ranks:
            program = top.process.program()
            if top.role not in ("api-server", "frontend") or program is None:
                continue
            if any(r.parent is top and r.prefix for r in ranks):
                continue  # its engine core has a title: this is no old release
            tp = argument(program[2], "--tensor-parallel-size", "-tp") or 1
            pp = argument(program[2], "--pipeline-parallel-size", "-pp") or 1
            for core in [r for r in ranks if r.parent is top and r.role in ("child", "engine-core") and not r.prefix]:
                workers = sorted(
                    (r for r in ranks if r.parent is core and not r.prefix), key=lambda r: (r.process.started, r.pid)
                )
                if core.role == "child":
                    if not workers and top.role != "api-server":
                        continue  # some helper of a user's script
                    core.role = "engine-core"
                    core.rank_source = "argv"
                if tp * pp == 1 or len(workers) not in (tp * pp, tp * pp - 1):
                    continue
                numbered = workers if len(workers) == tp * pp else [core] + workers
                for world, rank in enumerate(numbered):
                    rank.ranks["world"] = world
                    if tp > 1:
                        rank.ranks["tp"] = rank.parts["tp"] = world % tp
                    if pp > 1:
                        rank.ranks["pp"] = rank.parts["pp"] = world // tp
                    if rank is not core:
                        rank.role = "worker"
                    rank.rank_source = "argv"
                    rank.note("rank by order of start")

    def world(self, ranks):
        """Layout DP x PP x PCP x TP (parallel_state.initialize_model_parallel), where every rank of it is here."""
        workers = [r for r in ranks if r.role == "worker" and "fork" not in r.marks]
        groups = {}
        for rank in workers:  # a dense model's DP replicas have no DP in their titles and are worlds of their own
            groups.setdefault(None if "dp" in rank.parts else rank.ppid, []).append(rank)
        for group in groups.values():
            order = ("dp", "pp", "pcp", "tp")
            sizes = [1 + max(r.parts.get(g, 0) for r in group) for g in order]
            numbers = []
            for rank in group:
                number = 0
                for g, size in zip(order, sizes):
                    number = number * size + rank.parts.get(g, 0)
                numbers.append(number)
            whole = all(r.rank_source == "title" for r in group) and sorted(numbers) == list(range(len(group)))
            for rank, number in zip(group, numbers):
                if rank.rank_source == "title" and (whole or (sizes[:3] == [1, 1, 1] and "tp" in rank.parts)):
                    rank.ranks["world"] = number  # with only TP in a title the other groups have one member

    def memory(self, runtime, rank):
        found = group_ranks(runtime, "vllm.distributed.parallel_state", GROUPS)
        frame = outer_frame(runtime, ("worker_busy_loop", "run_busy_loop"))
        if frame is not None and frame.function.rpartition(".")[2] == "worker_busy_loop":
            ranks, sizes = found or ({}, {})
            if "world" not in ranks:
                ranks["world"] = checked_rank(frame_local(frame, "self", "rank").integer())
            return Memory("worker", ranks, sizes)
        if frame is not None:
            ranks, sizes = found or ({}, {})  # the groups are there when the core runs the model itself
            size = checked_rank(frame_local(frame, "self", "vllm_config", "parallel_config", "data_parallel_size").integer())
            index = checked_rank(frame_local(frame, "self", "engine_index").integer())
            if size > 1 or index > 0:
                ranks["dp"], sizes["dp"] = index, max(size, index + 1)
            return Memory("engine-core", ranks, sizes)
        if found and found[0]:
            return Memory("", *found)
        if found is None and runtime.module("vllm") is None:
            return None
        return Memory("", {}, {})
