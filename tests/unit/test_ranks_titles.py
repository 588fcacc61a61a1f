"""What titles and command lines of every era say, engine by engine. Sources: the engines' own set_process_title calls."""

import pytest

from gdbext.engines.rank import label_parts
from gdbext.engines.registry import ENGINES, SPECS


def read(title):
    found = [(spec.name, match) for spec in ENGINES for match in [spec.match_title(title)] if match is not None]
    assert len(found) <= 1, "two engines claim one title"
    if not found:
        return None
    engine, match = found[0]
    return engine, match.role, match.ranks


@pytest.mark.parametrize(
    "title, role, ranks",
    [
        ("VLLM::EngineCore", "engine-core", {}),
        ("VLLM::EngineCore_DP3", "engine-core", {"dp": 3}),
        ("VLLM::DPEngineCore_2", "engine-core", {"dp": 2}),
        ("VLLM::Worker", "worker", {}),
        ("VLLM::Worker_TP0", "worker", {"tp": 0}),
        ("VLLM::Worker_DP1_TP3_EP7", "worker", {"dp": 1, "tp": 3, "ep": 7}),
        ("VLLM::Worker_PP1_TP0", "worker", {"pp": 1, "tp": 0}),
        ("VLLM::Worker_DP0_PP1_PCP2_TP3_DCP1_EP5", "worker", {"dp": 0, "pp": 1, "pcp": 2, "tp": 3, "dcp": 1, "ep": 5}),
        ("VLLM::EngineCore_TP0", "worker", {"tp": 0}),
        ("VLLM::EngineCore_PP1_TP2", "worker", {"pp": 1, "tp": 2}),
        ("VLLM::DPEngineCore_1_TP0", "worker", {"dp": 1, "tp": 0}),
        ("VLLM::APIServer_0", "api-server", {}),
        ("VLLM::APIServer_DP1", "api-server", {}),
        ("VLLM::DPCoordinator", "coordinator", {}),
        ("prod-7::Worker_TP11", "worker", {"tp": 11}),
    ],
)
def test_vllm_titles_of_every_era(title, role, ranks):
    assert read(title) == ("vllm", role, ranks)


@pytest.mark.parametrize(
    "title, role, ranks",
    [
        ("sglang::scheduler", "scheduler", {}),
        ("sglang::scheduler_TP1", "scheduler", {"tp": 1}),
        ("sglang::scheduler_DP1_TP2_PP3", "scheduler", {"dp": 1, "tp": 2, "pp": 3}),
        ("sglang::scheduler_DP0_TP1_EP1_PP0", "scheduler", {"dp": 0, "tp": 1, "ep": 1, "pp": 0}),
        ("sglang::scheduler_PP2_TP1", "scheduler", {"pp": 2, "tp": 1}),
        (
            "sglang::scheduler_DP1_PP0_ATTN_CP2_MOE_DP1_TP5_EP3",
            "scheduler",
            {"dp": 1, "pp": 0, "attn_cp": 2, "moe_dp": 1, "tp": 5, "ep": 3},
        ),
        ("sglang::detokenizer", "detokenizer", {}),
        ("sglang::detokenizer_router", "detokenizer", {}),
        ("sglang::data_parallel_controller", "coordinator", {}),
        ("sglang::tokenizer_worker:4711", "api-server", {}),
    ],
)
def test_sglang_titles_of_every_era(title, role, ranks):
    assert read(title) == ("sglang", role, ranks)


@pytest.mark.parametrize("era", ["rtp_llm", "maga_ft"])
def test_rtp_llm_titles_of_both_naming_eras_give_the_local_rank(era):
    assert read(f"{era}_rank-3") == ("rtp-llm", "rank", {"local": 3})
    assert read(f"{era}_backend_server") == ("rtp-llm", "backend", {})
    assert read(f"{era}_frontend_server_2") == ("rtp-llm", "api-server", {})


def test_rtp_llm_servers_of_the_newer_era():
    assert read("rtp_llm_frontend_server_rank_1_server_2") == ("rtp-llm", "api-server", {})
    assert read("rtp_llm_dash_sc_server_rank_0_server_1") == ("rtp-llm", "api-server", {})
    assert read("rtp_llm_vit_server_0") == ("rtp-llm", "vit", {})
    assert read("rtp_llm_vit_proxy_server") == ("rtp-llm", "vit", {})


@pytest.mark.parametrize(
    "title",
    [
        "",
        "VLLM",
        "VLLM::",
        "::Worker",
        "VLLM::Worker_",
        "VLLM::Worker_TP",
        "VLLM::Worker_TPx",
        "VLLM::Worker_TP0 ",
        "VLLM::Workers",
        "VLLM::Worker_TP0\n",
        "VLLM::Worker_TP\u0661",
        "VLLM::Worker_TP1234567",
        "VLLM::EngineCore_TP0x",
        "VLLM::Worker_XX0",
        "grep VLLM::Worker",
        "VLLM::Worker_TP0 --flag",
        "sglang::schedulers",
        "sglang::scheduler_TP0\x1b[31m",
        "rtp_llm_rank-",
        "rtp_llm_rank-x",
        "my_rtp_llm_rank-0",
        "rtp_llm_rank-0.log",
        "a" * 70000 + "::Worker",
    ],
)
def test_what_only_resembles_a_title_is_none(title):
    found = read(title)
    assert (
        found is None or found[1:] == ("worker", {}) and title.startswith("grep ")
    )  # a prefix may hold blanks: argv decides there


def test_a_custom_prefix_is_a_doubt():
    assert SPECS["vllm"].match_title("VLLM::Worker_TP0").unconfirmed == ""
    assert "prod" in SPECS["vllm"].match_title("prod::Worker_TP0").unconfirmed


@pytest.mark.parametrize(
    "engine, program",
    [
        ("vllm", ("script", "/opt/venv/bin/vllm", ["serve", "m"])),
        ("vllm", ("module", "vllm.entrypoints.openai.api_server", [])),
        ("sglang", ("module", "sglang.launch_server", ["--tp", "2"])),
        ("sglang", ("script", "/usr/bin/sglang", ["serve"])),
        ("rtp-llm", ("module", "rtp_llm.start_server", [])),
        ("rtp-llm", ("module", "maga_transformer.start_server", [])),
        ("trtllm", ("script", "/usr/local/bin/trtllm-serve", ["m"])),
        ("trtllm", ("module", "tensorrt_llm.llmapi.mgmn_worker_node", [])),
        ("lmdeploy", ("script", "/usr/bin/lmdeploy", ["serve", "api_server", "m"])),
    ],
)
def test_servers_are_known_by_what_their_python_runs(engine, program):
    assert [s.name for s in ENGINES if s.match_argv(*program)] == [engine]


@pytest.mark.parametrize(
    "program",
    [
        ("script", "bench.py", ["vllm", "serve"]),
        ("script", "/usr/bin/vllm", ["bench", "serve"]),
        ("code", "import vllm.entrypoints.openai.api_server", []),
        ("module", "pytest", ["sglang.launch_server"]),
        ("script", "x.py", ["VLLM::Worker_TP0"]),
        ("script", "/usr/bin/lmdeploy", ["chat"]),
    ],
)
def test_programs_that_only_mention_an_engine_are_none(program):
    assert [s.name for s in ENGINES if s.match_argv(*program)] == []


def test_label_parts():
    assert label_parts("DP1.TP3") == {"dp": 1, "tp": 3}
    assert label_parts("dp1_tp3") == {"dp": 1, "tp": 3}
    assert label_parts("EngineCore.DP1") == {} and label_parts("TP") == {} and label_parts("TP1.TP2") == {}
