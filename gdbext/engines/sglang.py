"""SGLang: titles of every era (srt/managers/scheduler.py, detokenizer_manager.py, data_parallel_controller.py), the server that
keeps its argv, releases without titles, and the rank that Python itself holds.

0.4.3: plain `sglang::scheduler`. 0.4.9 on: `sglang::scheduler[_DPn][_PPn][_ATTN_CPn][_MOE_DPn][_TPn][_EPn]`, the parts in an
order that changed four times. From 0.5.16 on DP, TP and EP of the title may be display ranks.
"""

import re

from .base import EngineSpec, Match, Memory, checked_rank, frame_local, group_ranks, outer_frame
from .vllm import argument

_N = "[0-9]{1,6}"
_PARTS = "DP|PP|ATTN_CP|MOE_DP|TP|EP"
_PART = re.compile(f"_({_PARTS})({_N})")
_TITLE = re.compile(
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
    libraries = re.compile(r"/sgl_kernel/\S*\.so")
    zombies = (
        ("sglang::schedul", "scheduler"),
        ("sglang::detoken", "detokenizer"),
        ("sglang::data_pa", "coordinator"),
        ("sglang::tokeniz", "api-server"),
    )
    parent_roles = {"scheduler": "frontend", "detokenizer": "frontend", "coordinator": "frontend"}

    def titled(self, title):
        m = _TITLE.fullmatch(title)
        if not m:
            return None
        if m.group("scheduler"):
            return Match("scheduler", {group.lower(): int(number) for group, number in _PART.findall(m.group("parts"))})
        other = m.group("other")
        if m.group("worker"):
            return Match("api-server", name="tokenizer-worker")
        if other == "data_parallel_controller":
            return Match("coordinator", name="dp-controller")
        return Match("detokenizer", name=other.replace("_", "-"))

    def argued(self, kind, text, arguments):
        if kind == "module" and text in ("sglang.launch_server", "sglang.srt.entrypoints.http_server"):
            return Match("api-server")
        if kind == "script" and text.rpartition("/")[2] == "sglang" and arguments[:1] == ["serve"]:
            return Match("api-server")
        if kind == "module" and text in ("sglang", "sglang.cli.main") and arguments[:1] == ["serve"]:
            return Match("api-server")
        return None

    def child(self, parent, process):
        if parent.role in ("frontend", "api-server", "coordinator"):
            if process.is_spawned or process.cmdline == parent.process.cmdline:
                return Match("child", {}, "no title")
        return None

    def order(self, ranks):
        """Releases without titles start the schedulers in order of TP rank and then the detokenizer (srt/server.py of 0.3.6);
        believed when their count is what the command line says."""
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
            for world, rank in enumerate(children):
                rank.role = "scheduler" if world < tp else "detokenizer"
                rank.rank_source = "argv"
                rank.note("role and rank by order of start")
                if world < tp:
                    rank.ranks["world"] = world
                    if tp > 1:
                        rank.ranks["tp"] = rank.parts["tp"] = world

    def world(self, ranks):
        """`tp_size * pp_rank + tp_rank`, where every rank of it is here. With DP in the titles they do not prove it."""
        group = [r for r in ranks if r.role == "scheduler" and r.rank_source == "title" and "fork" not in r.marks]
        if any("dp" in r.parts for r in group):
            for rank in group:
                rank.note("DP, TP and EP of the title may be display ranks (0.5.16 and later); -verify reads them from memory")
            return
        tp = 1 + max([r.parts.get("tp", 0) for r in group] or [0])
        numbers = [r.parts.get("pp", 0) * tp + r.parts.get("tp", 0) for r in group]
        if sorted(numbers) == list(range(len(group))) or not any("pp" in r.parts for r in group):
            for rank, number in zip(group, numbers):
                rank.ranks["world"] = number

    def memory(self, runtime, rank):
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
