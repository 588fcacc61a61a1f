"""RTP-LLM: titles of both kinds. A title gives the LOCAL rank; the global one is WORLD_RANK in the environment.

Sources: rtp_llm/start_backend_server.py, start_frontend_server.py, start_dash_sc_server.py, multimodal/vit_*; before mid-2025
maga_transformer/start_*."""

from __future__ import annotations

import re

from ..recognition import memory_environ
from ..spec import EngineSpec, Match, Memory, environ_names, environ_ranks, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

    from ...cpython.runtime import Runtime
    from ..rank import Rank


_N = "[0-9]{1,6}"
_TITLE = (
    f"(?:rtp_llm|maga_ft)_(?:(?P<backend>backend_server)|rank-(?P<local>{_N})"
    f"|(?P<front>frontend_server|dash_sc_server)_(?:rank_(?P<r>{_N})_server_(?P<s>{_N})|(?P<id>{_N}))"
    f"|(?P<vit>vit_server_{_N}|vit_proxy_server))"
)
_STARTERS = ("start_server", "start_backend_server", "start_frontend_server")


class RtpLlm(EngineSpec):
    name = "rtp-llm"
    display = "RTP-LLM"
    unproven = True
    packages = ("rtp_llm", "maga_transformer")
    libraries = r"/libth_transformer\S*\.so"
    zombies = (
        ("rtp_llm_backend", "backend"),
        ("rtp_llm_rank-", "rank"),
        ("rtp_llm_fronten", "api-server"),
        ("maga_ft_backend", "backend"),
        ("maga_ft_rank-", "rank"),
        ("maga_ft_fronten", "api-server"),
    )
    environ_ranks = (("world", ("WORLD_RANK",)), ("local", ("LOCAL_RANK",)))
    parent_roles = {"rank": "backend"}
    kv_module = "kv"
    kv_classes = (
        "NormalEngine",
        "FIFOScheduler",
        "FIFOSchedulerBase",
        "KVCacheManager",
        "CacheManager",
        "BlockPool",
        "KVCacheAllocator",
    )
    kv_types = (
        "rtp_llm::BlockPool",
        "rtp_llm::CacheManager",
    )  # a process whose debug information has none of them is not read
    sensitive = words("messages prompt_text input_token_ids")

    def match_title(self, title: str) -> Match | None:
        m = re.fullmatch(_TITLE, title)
        if not m:
            return None
        if m.group("local"):
            return Match("rank", {"local": int(m.group("local"))}, name=f"rank-{int(m.group('local'))}")
        if m.group("backend"):
            return Match("backend", name="backend")
        if m.group("vit"):
            return Match("vit", name=m.group("vit").replace("_", "-"))
        front = {"frontend_server": "frontend", "dash_sc_server": "dash-sc"}[m.group("front")]
        number = m.group("id") if m.group("id") is not None else f"{m.group('r')}.{m.group('s')}"
        return Match("api-server", name=f"{front}-{number}")

    def match_argv(self, kind: str, text: str, arguments: list[str]) -> Match | None:
        if kind == "module" and re.fullmatch(f"(rtp_llm|maga_transformer)\\.({'|'.join(_STARTERS)})", text):
            return Match("frontend", name="server")
        if kind == "script" and re.search(f"(^|/)(rtp_llm|maga_transformer)/({'|'.join(_STARTERS)})\\.py$", text):
            return Match("frontend", name="server")
        return None

    def infer_world(self, ranks: Sequence[Rank]) -> None:
        for rank in ranks:
            if rank.role not in ("rank", "backend") or rank.rank_source == "memory":
                continue
            found = environ_ranks(self, rank.process.environ)
            if "world" in found:
                rank.ranks["world"] = found["world"]
                if rank.rank_source == "tree":
                    rank.rank_source = "environ"
            elif rank.role == "rank":
                rank.note(
                    "the title gives the local rank; WORLD_RANK was not readable in its environment, -verify looks in its memory"
                )

    def ranks_in_memory(self, runtime: Runtime, rank: Rank) -> Memory | None:
        if runtime.module("rtp_llm") is None and runtime.module("maga_transformer") is None:
            return None
        return Memory("", environ_ranks(self, memory_environ(runtime, environ_names(self))))
