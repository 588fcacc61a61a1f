"""SGLang: titles of every release (srt/managers/scheduler.py, detokenizer_manager.py, data_parallel_controller.py), the server,
which keeps its argv, releases without titles, and the rank in Python's own memory.

0.4.3: plain `sglang::scheduler`. 0.4.9 on: `sglang::scheduler[_DPn][_PPn][_ATTN_CPn][_MOE_DPn][_TPn][_EPn]`, with parts in an
order that changed four times. From 0.5.16 on DP, TP and EP of the title may be display ranks.
"""

from __future__ import annotations

import re
from typing import Mapping, Sequence

from ..instances import Instance, Spread, Words
from ..recognition import checked_rank, frame_local, group_ranks, outer_frame
from ..spec import COMMUNICATORS, EngineSpec, Match, Memory, Presets, Profiler, Rings, argument, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ...access.proctable import Process
    from ...cpython.runtime import Runtime
    from ..rank import Rank


BOOTSTRAP = 8998  # srt/server_args.py: disaggregation_bootstrap_port
_N = "[0-9]{1,6}"
_PARTS = "DP|PP|ATTN_CP|MOE_DP|TP|EP"
_PART = f"_({_PARTS})({_N})"
_TITLE = (
    f"sglang::(?:(?P<scheduler>scheduler)(?P<parts>(?:_(?:{_PARTS}){_N})*)"
    f"|(?P<other>detokenizer_router|detokenizer|data_parallel_controller|tokenizer_worker:(?P<worker>[0-9]{{1,10}})))"
)
_LOOPS = (
    "event_loop_normal",
    "event_loop_overlap",
    "event_loop_pp",
    "event_loop_normal_disagg_prefill",
    "event_loop_normal_disagg_decode",
    "event_loop_overlap_disagg_prefill",
    "event_loop_overlap_disagg_decode",
    "event_loop_pp_disagg_prefill",
    "event_loop_pp_disagg_decode",
)
GROUPS = {"_WORLD": "world", "_TP": "tp", "_PP": "pp", "_MOE_EP": "ep", "_ATTN_CP": "attn_cp", "_MOE_DP": "moe_dp"}


class Sglang(EngineSpec):
    name = "sglang"
    display = "SGLang"
    packages = ("sglang",)
    libraries = r"/sgl_kernel/\S*\.so"
    zombies = (
        ("sglang::schedul", "scheduler"),
        ("sglang::detoken", "detokenizer"),
        ("sglang::data_pa", "coordinator"),
        ("sglang::tokeniz", "api-server"),
    )
    parent_roles = {"scheduler": "frontend", "detokenizer": "frontend", "coordinator": "frontend"}

    # srt/managers/scheduler.py, scheduler_components/request_receiver.py
    resting = {
        "scheduler": r"recv_requests|event_loop_\w+|self_check_during_idle|_maybe_sleep_on_idle|maybe_sleep_on_idle",
        "detokenizer": r"event_loop",  # srt/managers/detokenizer_manager.py
    }
    # srt/entrypoints/engine.py, srt/model_executor/model_runner.py
    starting = (
        "init_distributed_environment|load_model|load_weights|initialize_model|wait_for_ready|_launch_subprocesses|"
        "_wait_for_scheduler_ready"
    )
    collective_files = COMMUNICATORS
    reporting = (
        ("/sglang/srt/managers/scheduler.py", "run_scheduler_process"),
        ("/sglang/srt/managers/detokenizer_manager.py", "run_detokenizer_process"),
        ("/sglang/srt/managers/data_parallel_controller.py", "run_data_parallel_controller_process"),
    )
    rings = Rings(holders=("mq_broadcaster",), within=("",), broadcast="")

    port = 30000  # srt/server_args.py
    metrics = "sglang:num_(?:running|queue)_reqs"  # srt/metrics/collector.py

    kv_module = "kv"
    requests_module = "requests"
    asking = {("/managers/tokenizer_manager.py", "generate_request"): "obj.rid"}
    grammar_module = "grammar"
    kv_releases = "SGLang 0.4.3 to 0.5.23"
    kv_newest = (0, 5, 23)
    # Req, TokenizedGenerateReqInput, ScheduleBatch, SamplingParams
    sensitive = words(
        "origin_input_text origin_input_ids origin_input_ids_unpadded input_text input_ids output_ids fill_ids decoded_text text "
        "full_untruncated_fill_ids "
        "output_text output_strs decode_ids read_ids surr_and_decode_ids json_schema regex ebnf structural_tag stop_strs "
        "stop_regex_strs logit_bias cache_salt extra_key"
    )
    # 0.5: srt/managers/scheduler.py, srt/managers/schedule_batch.py, srt/model_executor/model_runner.py
    presets = Presets(
        step=["Scheduler.run_batch"],
        request=[("Scheduler.run_batch", "[r.rid for r in batch.reqs]")],
        oom=("OutOfMemoryError", ["ScheduleBatch.retract_decode"]),
        nan=[("ModelRunner.sample", "logits_output.next_token_logits")],
    )
    profiler = Profiler(
        "SGLANG_TORCH_PROFILER_DIR",
        "",
        "/tmp",
        "SGLang always has the end point; traces land in SGLANG_TORCH_PROFILER_DIR, or /tmp",
        # ProfileReq, srt/managers/io_struct.py
        {"activities": "activities", "steps": "num_steps", "o": "output_dir", "stage": "profile_by_stage"},
    )
    eager = "--disable-cuda-graph (and without --enable-torch-compile)"
    kernels = "sglang"

    def match_title(self, title: str) -> Match | None:
        m = re.fullmatch(_TITLE, title)
        if not m:
            return None
        if m.group("scheduler"):
            return Match("scheduler", {group.lower(): int(number) for group, number in re.findall(_PART, m.group("parts"))})
        other = m.group("other")
        if m.group("worker"):
            return Match("api-server", name="tokenizer-worker")
        if other == "data_parallel_controller":
            return Match("coordinator", name="dp-controller")
        return Match("detokenizer", name=other.replace("_", "-"))

    def match_argv(self, kind: str, text: str, arguments: list[str]) -> Match | None:
        if kind == "module" and text in ("sglang.launch_server", "sglang.srt.entrypoints.http_server"):
            return Match("api-server")
        if kind == "script" and text.rpartition("/")[2] == "sglang" and arguments[:1] == ["serve"]:
            return Match("api-server")
        if kind == "module" and text in ("sglang", "sglang.cli.main") and arguments[:1] == ["serve"]:
            return Match("api-server")
        return None

    def match_child(self, parent: Rank, process: Process) -> Match | None:
        if parent.role in ("frontend", "api-server", "coordinator"):
            if process.is_spawned or process.cmdline == parent.process.cmdline:
                return Match("child", {}, "no title")
        return None

    def infer_order(self, ranks: Sequence[Rank]) -> None:
        """Releases without titles start the schedulers in order of TP rank and then the detokenizer (srt/server.py of 0.3.6).
        That order is believed when their count is the one on the command line."""
        for top in ranks:
            program = top.process.program()
            if top.role != "api-server" or program is None:
                continue
            children = sorted(
                (r for r in ranks if r.parent is top and r.role == "child"), key=lambda r: (r.process.started, r.pid)
            )
            tp = argument(program[2], "--tensor-parallel-size", "--tp-size", "--tp") or 1
            if len(children) != tp + 1 or (argument(program[2], "--data-parallel-size", "--dp-size", "--dp") or 1) > 1:
                continue
            titled = any(r.parent is top and r.rank_source == "title" for r in ranks)
            if titled or (argument(program[2], "--tokenizer-worker-num") or 1) > 1:
                continue  # a release with titles: these are its tokenizer workers, which have none yet
            for world, rank in enumerate(children):
                rank.role = "scheduler" if world < tp else "detokenizer"
                rank.rank_source = "argv"
                rank.note("role and rank by order of start")
                if world < tp:
                    rank.ranks["world"] = world
                    if tp > 1:
                        rank.ranks["tp"] = rank.label_ranks["tp"] = world

    def infer_world(self, ranks: Sequence[Rank]) -> None:
        """`tp_size * pp_rank + tp_rank`, where every rank of it is here. With DP in the titles they do not prove it."""
        group = [r for r in ranks if r.role == "scheduler" and r.rank_source == "title" and "fork" not in r.marks]
        if any("dp" in r.label_ranks for r in group):
            for rank in group:
                rank.note("DP, TP and EP of the title may be display ranks (0.5.16 and later); -verify reads them from memory")
            return
        tp = 1 + max([r.label_ranks.get("tp", 0) for r in group] or [0])
        numbers = [r.label_ranks.get("pp", 0) * tp + r.label_ranks.get("tp", 0) for r in group]
        if sorted(numbers) == list(range(len(group))) or not any("pp" in r.label_ranks for r in group):
            for rank, number in zip(group, numbers):
                rank.ranks["world"] = number

    def describe_instance(self, found: Instance, words: Words, environ: Mapping[str, str]) -> None:
        super().describe_instance(found, words, environ)
        role = words.text("--disaggregation-mode")
        found.role = role if role in ("prefill", "decode") else "encode" if "--encoder-only" in words.arguments else ""
        if found.role == "prefill":
            found.ports["bootstrap"] = words.port("--disaggregation-bootstrap-port") or BOOTSTRAP

    def spread(self, arguments: Sequence[str]) -> Spread | None:
        """srt/entrypoints/engine.py (_calculate_rank_ranges)."""
        nodes, node = argument(arguments, "--nnodes") or 1, argument(arguments, "--node-rank") or 0
        tp = argument(arguments, "--tensor-parallel-size", "--tp-size", "--tp") or 1
        pp = argument(arguments, "--pipeline-parallel-size", "--pp-size", "--pp") or 1
        replicas = argument(arguments, "--data-parallel-size", "--dp-size", "--dp") or 1
        each = max(nodes // pp, 1)  # machines of one stage
        if not 1 < nodes or node >= nodes or tp % each or replicas > 1 and "--enable-dp-attention" not in arguments:
            return None
        stages, ranks = max(pp // nodes, 1), tp // each
        stage, rank = stages * (node // each), ranks * (node % each)
        here = [p * tp + t for p in range(stage, stage + stages) for t in range(rank, rank + ranks)]
        return Spread("world", tp * pp, here, nodes, node, Words(arguments).text("--dist-init-addr", "--nccl-init-addr"))

    def ranks_in_memory(self, runtime: Runtime, rank: Rank) -> Memory | None:
        frame = outer_frame(runtime, ("run_scheduler_process",))
        found = None
        for module in ("sglang.srt.distributed.parallel_state",):
            found = found or group_ranks(runtime, module, GROUPS)
        if frame is not None:
            ranks, sizes = found or ({}, {})
            for group in ("tp", "pp", "dp"):
                value = frame_local(frame, group + "_rank")
                if value.type_name != "NoneType":  # dp_rank is None without data parallelism
                    ranks[group] = checked_rank(value.integer())
            return Memory("scheduler", ranks, sizes)
        if outer_frame(runtime, ("run_detokenizer_process",)) is not None:
            return Memory("detokenizer")
        if outer_frame(runtime, ("run_data_parallel_controller_process",)) is not None:
            return Memory("coordinator")
        if found and found[0]:
            return Memory("scheduler" if outer_frame(runtime, _LOOPS) else "", *found)
        return None if runtime.module("sglang") is None else Memory()
