"""vLLM: titles of every release, processes without titles, and the rank in Python's own memory.

0.10.1: `VLLM::DPEngineCore_n`; workers append `_PPp_TPt` to the title that they inherited. 0.10.2 on: `VLLM::EngineCore[_DPn]`,
`VLLM::Worker[_DPn][_PPn][_PCPn][_TPn][_DCPn][_EPn]`; the prefix is VLLM_PROCESS_NAME_PREFIX. Sources: vllm/v1/engine/core.py,
v1/executor/multiproc_executor.py, v1/utils.py, v1/engine/coordinator.py, entrypoints/launchers/dp_supervisor.py,
utils/system_utils.py.
"""

from __future__ import annotations

import math
import re
from typing import Mapping, Sequence

from ..instances import Instance, Spread, Words, port_in
from ..recognition import checked_rank, frame_local, group_ranks, outer_frame
from ..spec import COMMUNICATORS, EngineSpec, Match, Memory, Presets, Profiler, Rings, argument, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ...access.proctable import Process
    from ...cpython.runtime import Runtime
    from ..rank import Rank


_N = "[0-9]{1,6}"
_PART = f"_(DP|PP|PCP|TP|DCP|EP)({_N})"
_TITLE = (
    "(?s:(?P<prefix>.{1,200}?)::(?:"
    f"(?P<worker>Worker)(?P<parts>(?:_(?:DP|PP|PCP|TP|DCP|EP){_N})*)"
    f"|(?P<core>EngineCore(?:_DP(?P<dp>{_N}))?|DPEngineCore_(?P<olddp>{_N}))(?P<appended>(?:_PP{_N})?(?:_TP{_N})?)"
    f"|APIServer_(?P<api>(?:DP)?{_N})"
    "|(?P<coordinator>DPCoordinator)))"
)
_APPENDED = f"(?s:(?P<base>.*[^_])(?P<appended>(?:_PP{_N})?_TP{_N}|_PP{_N}))"  # 0.10.1 on an untitled parent
_SERVERS = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server", "vllm.entrypoints.grpc_server")
RUNNER_V1, RUNNER_V2 = "vllm.v1.worker.gpu_model_runner", "vllm.v1.worker.gpu.model_runner"
GROUPS = {"_WORLD": "world", "_TP": "tp", "_PP": "pp", "_DP": "dp", "_EP": "ep", "_PCP": "pcp", "_DCP": "dcp"}
# _DCP was added with decode context parallelism; older releases lack the later names, which is no error.


def _parts(text: str) -> dict[str, int]:
    return {group.lower(): int(number) for group, number in re.findall(_PART, text)}


class Vllm(EngineSpec):
    name = "vllm"
    display = "vLLM"
    packages = ("vllm",)
    libraries = r"/vllm/(_\w+|vllm_flash_attn/\S+|cumem_allocator)\S*\.so"
    zombies = (
        ("VLLM::EngineCor", "engine-core"),
        ("VLLM::DPEngineC", "engine-core"),
        ("VLLM::Worker", "worker"),
        ("VLLM::DPCoordin", "coordinator"),
        ("VLLM::APIServer", "api-server"),
    )
    environ_ranks = (("world", ("RANK",)), ("local", ("LOCAL_RANK",)))
    parent_roles = {"engine-core": "frontend", "worker": "engine-core", "coordinator": "frontend", "api-server": "frontend"}
    prefixes = ("", "VLLM")  # VLLM_PROCESS_NAME_PREFIX sets another

    # v1/engine/core.py; distributed/device_communicators/shm_broadcast.py
    resting = {
        "engine-core": "_process_input_queue|_get_input|wait_for_input|_recv_inputs?",
        "worker": "acquire_read|dequeue|recv_multipart|_recv",
        "coordinator": "process_input_socket",  # v1/engine/coordinator.py
        "api-server": "wait_for_completion_or_failure",  # v1/utils.py: it has started API servers and waits for their end
    }
    # v1/engine/utils.py, v1/worker/*_worker.py, model_executor/model_loader, v1/executor/multiproc_executor.py
    starting = (
        "init_distributed_environment|init_worker_distributed_environment|load_model|load_weights|initialize_model|wait_for_ready|"
        "wait_for_engine_startup|_wait_for_engine_startup|launch_core_engines"
    )
    answering = "get_response|collective_rpc|wait_for_response|_wait_for_response"  # v1/executor/multiproc_executor.py
    collective_files = (*COMMUNICATORS, "shm_object_storage.py")
    spins = (("sched_yield", "/vllm/distributed/utils.py"),)
    reporting = (
        ("/vllm/v1/executor/multiproc_executor.py", "_execute_worker_rpc"),
        ("/vllm/v1/executor/multiproc_executor.py", "worker_main"),
        ("/vllm/v1/fault_tolerance/engine_core_sentinel.py", "run_with_fault_tolerance"),
        ("/vllm/v1/engine/core.py", "run_engine_core"),
    )
    rings = Rings(
        holders=("rpc_broadcast_mq", "worker_response_mq", "response_mqs", "mq_broadcaster"),
        within=("", "model_executor", "executor"),
        broadcast="rpc_broadcast_mq",
    )

    port = 8000  # entrypoints/openai/cli_args.py
    metrics = "vllm:num_requests_(?:running|waiting)"  # v1/metrics/loggers.py

    kv_module = "kv"
    requests_module = "requests"
    asking = {("/v1/engine/async_llm.py", name): "request_id" for name in ("generate", "encode")}
    goes_in_step = True
    grammar_module = "grammar"
    kv_releases = "vLLM 0.6.6 to 0.32 (V1)"
    kv_newest = (0, 32)
    # Request, NewRequestData, EngineCoreRequest, CompletionOutput, InputBatch, SamplingParams, StructuredOutputsParams
    sensitive = words(
        "prompt prompts prompt_token_ids prompt_embeds _all_token_ids all_token_ids output_token_ids _output_token_ids token_ids "
        "new_token_ids sampled_token_ids spec_token_ids draft_token_ids resumed_req_token_ids num_prompt_logprobs_token_ids "
        "token_ids_cpu token_ids_cpu_tensor token_ids_gpu_tensor token_ids_tensor token_ids_np token_ids_list token_ids_lst "
        "prompt_token_ids_cpu prompt_token_ids_cpu_tensor prefill_token_ids prev_sampled_token_ids sampled_token_ids_cpu "
        "sampled_token_ids_pinned_cpu _sampled_token_ids valid_sampled_token_ids valid_sampled_token_ids_gpu next_token_ids "
        "req_output_token_ids output_token_ids_np draft_token_ids_cpu _draft_token_ids context_token_ids generated_token_ids "
        "decode_token_ids target_token_ids tgt_token_ids tmp_token_ids old_token_ids resumed_token_ids recovered_token_ids "
        "bonus_token_ids scheduled_spec_token_ids lookback_token_ids added_token_ids curr_block_token_ids last_sampled_tokens "
        "mm_features bad_words _bad_words_token_ids allowed_token_ids logit_bias cache_salt choice regex grammar "
        "structural_tag json extra_args tools tool_choice reasoning reasoning_content logprobs prompt_logprobs top_logprobs"
    )
    # V1, 0.11 to 0.32: v1/core/sched/scheduler.py, v1/worker/gpu_model_runner.py (the CPU's runner is a subclass). An id that a
    # user gives is part of the engine's own: vLLM appends to it. Scheduler._preempt_request: from 0.16 on.
    presets = Presets(
        step=["Scheduler.schedule"],
        request=[
            ("Scheduler.update_from_output", "[r for r in scheduler_output.num_scheduled_tokens]"),
            ("Scheduler._free_request", "[request.request_id]"),
        ],
        oom=("OutOfMemoryError", ["Scheduler._preempt_request"]),
        nan=[
            ("GPUModelRunner._sample", "logits", RUNNER_V1),
            ("Sampler.__call__", "logits", RUNNER_V2),  # v1/worker/gpu/sample/sampler.py
            ("RejectionSampler.__call__", "logits", RUNNER_V2),  # v1/worker/gpu/spec_decode/rejection_sampler.py
        ],
    )
    profiler = Profiler(
        "VLLM_TORCH_PROFILER_DIR",
        "torch_profiler_dir",
        "",
        "vLLM has the end point only when it was started with a profiler: "
        'vllm serve ... --profiler-config \'{"profiler": "torch", "torch_profiler_dir": "DIR"}\' '
        "(before 0.13: VLLM_TORCH_PROFILER_DIR=DIR in its environment)",
        {"steps": "max_iterations"},  # StartProfileRequest, entrypoints/serve/profile/api_router.py of 0.32
    )
    compile_marks = ("do_not_compile",)  # compilation/decorators.py
    eager = "--enforce-eager"
    kernels = "vllm"

    def match_title(self, title: str) -> Match | None:
        m = re.fullmatch(_TITLE, title)
        if not m:
            return None
        prefix = m.group("prefix")
        unconfirmed = "" if prefix == "VLLM" else f"its title begins with {prefix!r}, not VLLM"
        if m.group("worker"):
            return Match("worker", _parts(m.group("parts")), unconfirmed, prefix)
        if m.group("core"):
            dp = m.group("dp") or m.group("olddp")
            ranks = {"dp": int(dp)} if dp else {}
            if m.group("appended"):  # a 0.10.1 worker, forked from the core
                return Match("worker", {**ranks, **_parts(m.group("appended"))}, unconfirmed, prefix)
            return Match("engine-core", ranks, unconfirmed, prefix)
        if m.group("api"):
            api = m.group("api")
            return Match("api-server", {}, unconfirmed, prefix, "APIServer" + ("." if api.startswith("DP") else "") + api)
        return Match("coordinator", {}, unconfirmed, prefix)

    def match_argv(self, kind: str, text: str, arguments: list[str]) -> Match | None:
        if kind == "module" and (
            text in _SERVERS or (text in ("vllm", "vllm.entrypoints.cli.main") and arguments[:1] == ["serve"])
        ):
            return Match("api-server")
        if kind == "script" and text.rpartition("/")[2] == "vllm" and arguments[:1] == ["serve"]:
            return Match("api-server")
        return None

    def match_child(self, parent: Rank, process: Process) -> Match | None:
        if process.single:  # forked or spawned by 0.10.1: the inherited title with the ranks appended
            m = re.fullmatch(_APPENDED, process.title)
            if m and parent.role == "engine-core":
                return Match("worker", _parts(m.group("appended")))
        if process.is_spawned or process.cmdline == parent.process.cmdline:
            if parent.role == "engine-core":
                return Match("worker", {}, "no title")
            if parent.role in ("frontend", "api-server", "child"):
                return Match("child", {}, "no title")
        return None

    def match_dead_child(self, parent: Rank, process: Process) -> Match | None:
        if parent.role == "engine-core" and parent.prefix and process.comm.startswith(f"{parent.prefix}::W"[:15]):
            return Match("worker")
        return None

    def inherits_title(self, rank: Rank) -> bool:
        """0.10.1 forks workers that keep the title of their engine core."""
        if rank.role != "engine-core" or rank.rank_source == "memory":
            return False
        rank.role, rank.prefix = "worker", ""
        rank.replica = rank.label_ranks.pop("dp", None)
        rank.note("it has the title of its engine core: a worker of 0.10.1, or a fork")
        return True

    def infer_order(self, ranks: Sequence[Rank]) -> None:
        """Releases without titles start the workers in order of rank (v1/executor/multiproc_executor.py: `for rank in
        range(self.world_size)`); V0's driver is rank 0 itself and starts the others. The order is believed when the count is the
        one of argv.
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
                        rank.ranks["tp"] = rank.label_ranks["tp"] = world % tp
                    if pp > 1:
                        rank.ranks["pp"] = rank.label_ranks["pp"] = world // tp
                    if rank is not core:
                        rank.role = "worker"
                    rank.rank_source = "argv"
                    rank.note("rank by order of start")

    def infer_world(self, ranks: Sequence[Rank]) -> None:
        """Layout DP x PP x PCP x TP (parallel_state.initialize_model_parallel), where every rank of it is here."""
        workers = [r for r in ranks if r.role == "worker" and "fork" not in r.marks]
        groups: dict[int | None, list[Rank]] = {}
        for rank in workers:  # a dense model's DP replicas have no DP in their titles and are worlds of their own
            groups.setdefault(None if "dp" in rank.label_ranks else rank.ppid, []).append(rank)
        for group in groups.values():
            order = ("dp", "pp", "pcp", "tp")
            sizes = [1 + max(r.label_ranks.get(g, 0) for r in group) for g in order]
            numbers = []
            for rank in group:
                number = 0
                for g, size in zip(order, sizes):
                    number = number * size + rank.label_ranks.get(g, 0)
                numbers.append(number)
            whole = all(r.rank_source == "title" for r in group) and sorted(numbers) == list(range(len(group)))
            for rank, number in zip(group, numbers):
                if rank.rank_source == "title" and (whole or (sizes[:3] == [1, 1, 1] and "tp" in rank.label_ranks)):
                    rank.ranks["world"] = number  # with only TP in a title the other groups have one member

    def describe_instance(self, found: Instance, words: Words, environ: Mapping[str, str]) -> None:
        super().describe_instance(found, words, environ)
        transfer = words.json("--kv-transfer-config")
        found.role = {"kv_producer": "prefill", "kv_consumer": "decode", "kv_both": "both"}.get(str(transfer.get("kv_role")), "")
        found.engine_id = str(transfer.get("engine_id") or "")
        side = port_in(environ, "VLLM_NIXL_SIDE_CHANNEL_PORT") if transfer else None
        bootstrap = port_in(environ, "VLLM_MOONCAKE_BOOTSTRAP_PORT") if transfer else None
        found.ports.update({what: port for what, port in (("side-channel", side), ("bootstrap", bootstrap)) if port})
        number = words.text("--data-parallel-rank")
        found.dp_rank = int(number) if re.fullmatch("[0-9]{1,6}", number) else None

    def spread(self, arguments: Sequence[str]) -> Spread | None:
        """config/parallel.py (local_world_size, node_rank_within_dp), engine/arg_utils.py."""
        nodes, node = argument(arguments, "--nnodes", "-n") or 1, argument(arguments, "--node-rank", "-r") or 0
        replicas = argument(arguments, "--data-parallel-size", "-dp") or 1
        local, words = argument(arguments, "--data-parallel-size-local", "-dpl"), Words(arguments)
        if nodes > 1 and replicas == 1:
            sizes = [
                ("--tensor-parallel-size", "-tp"),
                ("--pipeline-parallel-size", "-pp"),
                ("--prefill-context-parallel-size", "-pcp"),
            ]
            size = math.prod(argument(arguments, *names) or 1 for names in sizes)
            each = size // nodes
            if each * nodes == size and node < nodes:
                return Spread(
                    "world", size, list(range(node * each, (node + 1) * each)), nodes, node, words.text("--master-addr")
                )
        if nodes == 1 and replicas > 1:
            one, head = argument(arguments, "--data-parallel-rank"), words.text("--data-parallel-address")
            first = argument(arguments, "--data-parallel-start-rank", "-dpr") or 0
            here = [one] if one is not None else list(range(first, min(first + local, replicas))) if local is not None else []
            return Spread("dp", replicas, here, head=head) if here and len(here) < replicas else None
        return None

    def ranks_in_memory(self, runtime: Runtime, rank: Rank) -> Memory | None:
        found = group_ranks(runtime, "vllm.distributed.parallel_state", GROUPS)
        frame = outer_frame(runtime, ("worker_busy_loop", "run_busy_loop"))
        if frame is not None and frame.function.rpartition(".")[2] == "worker_busy_loop":
            ranks, sizes = found or ({}, {})
            if "world" not in ranks:
                ranks["world"] = checked_rank(frame_local(frame, "self", "rank").integer())
            return Memory("worker", ranks, sizes)
        if frame is not None:
            ranks, sizes = found or ({}, {})  # the groups exist when the core runs the model itself
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
