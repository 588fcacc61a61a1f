"""llm-break, llm-launch and llm-bt at real launches: each subject says of every launch what it passes, then passes it."""

import json
import os
import re
import subprocess

import pytest
from harness.gdb_run import fetched
from harness.launches import build, small_program
from harness.subjects import SUBJECTS, spawned

WANTED = {"paged_attention_v1_kernel", "paged_attention_v2_kernel", "flash_fwd_kernel"}  # paged-attention, of those in paged.cu
STOP = ["llm-launch -json", "continue"]
PROGRAMS = ("shared", "static", "debug", "stripped", "static-stripped", "inlined")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Programs that nvcc 13 made, with NVIDIA's own runtime: {one of `PROGRAMS`: path}. Those of "inlined" have the host code of
    templates where they are launched."""
    nvcc = os.environ.get("GDBEXT_TEST_NVCC") or fetched("nvcc", "bin", "nvcc")
    if not nvcc:
        pytest.skip("no nvcc: run scripts/get-cuda nvcc")
    at = tmp_path_factory.mktemp("paged")
    libraries = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(nvcc))), "toolkit", "lib")
    link = [f"-L{libraries}", "-Xlinker", f"-rpath={libraries}"]
    build(nvcc, "-arch=sm_90", "-g", "-c", "-o", at / "paged.o", f"{SUBJECTS}/paged.cu")
    build(nvcc, "-arch=sm_90", "-cudart", "shared", "-o", at / "debug", at / "paged.o", *link)
    build(nvcc, "-arch=sm_90", "-cudart", "static", "-o", at / "static", at / "paged.o", *link)
    build(nvcc, "-arch=sm_90", "-O3", "-cudart", "shared", "-o", at / "inlined", f"{SUBJECTS}/paged.cu", *link)
    build("strip", "-g", "-o", at / "shared", at / "debug")
    build("strip", "-g", at / "static")
    build("strip", "-o", at / "stripped", at / "debug")
    build("strip", "-o", at / "static-stripped", at / "static")
    return {name: str(at / name) for name in PROGRAMS}


def truths(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith('{"kernel"') and '"shared"' in line]


def same(said, truth):
    """Whether llm-launch's answer is what the subject said it passes."""
    zero = [0, 0, 0]
    values = [
        int(a["value"], 16) if isinstance(a["value"], str) and a["value"].startswith("0x") else a["value"] for a in said["args"]
    ]
    return (
        truth["kernel"] in said["kernel"]
        and said["grid"] == truth["grid"]
        and said["block"] == truth["block"]
        and (said["cluster"] or zero) == truth["cluster"]
        and said["shared_bytes"] == truth["shared"]
        and int(said["stream"], 16) == truth["stream"]
        and all(v == t or isinstance(t, str) and v.startswith(t) for v, t in zip(values, truth["args"]))
        and len(values) >= len(truth["args"])
    )


def stops(said):
    """[(answer of llm-launch, truth)] of each stop, in order: what the subject wrote last before it was stopped."""
    found = []
    for i, output in enumerate(said.outputs):
        if '"schema": "llm-launch/1"' in output:
            found.append((said.json(i), truths("\n".join(said.outputs[:i]))[-1]))
    return found


@pytest.mark.every_gdb
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.drawn(5)
def test_one_stop_for_each_launch_with_all_values_right(gdb, compiled, program):
    said = gdb(
        ["llm-break -host paged-attention", "run", "llm-bt", *STOP * 6, "llm-break -json"],
        [compiled[program], "-ex", "set args 2"],
    )
    assert "about to be launched" in said.outputs[2]  # also where no symbol names the launch function
    wanted = [t for t in truths(said.text) if t["kernel"] in WANTED]
    assert len(wanted) == 6 and '{"end": true}' in said.text
    found = stops(said)
    assert [truth for _, truth in found] == wanted
    for answer, truth in found:
        assert same(answer, truth), (answer, truth)
        assert answer["arguments_counted"] and all(a["raw"] == isinstance(t, str) for a, t in zip(answer["args"], truth["args"]))
    (cost,) = said.json()["set"]
    assert cost["stops"] == 6 and cost["seconds_each"] > 0
    if program in ("shared", "static", "debug"):  # launches that nobody asked for (other_kernel, …) were not disturbed
        assert cost["launches_looked_at"] == 6
    if program == "debug":
        assert [a["name"] for a in found[0][0]["args"]] == ["out", "q", "k_cache", "scale", "block_tables", "q_stride", "flag"]
        params = found[2][0]["args"][0]
        assert params["raw"] and len(params["value"]) == 2 * 64 and params["name"] == "p"


def test_a_condition_names_the_arguments_that_debug_information_knows(gdb, compiled):
    said = gdb(
        [
            "llm-break -host paged_attention_v1_kernel if q_stride == -1",
            "llm-break -host paged_attention_v1_kernel if scale > 0",
            "run",
            "llm-launch -json",
        ],
        [compiled["debug"], "-ex", "set args 2"],
    )
    assert "scale" in {a["name"] for a in said.json(3)["args"]} and "cannot evaluate" not in said.text


def test_names_of_arguments_where_the_launch_gives_an_opaque_handle(gdb, compiled):
    """A handle is no address of a function: the host function whose signature is the kernel's has the names."""
    code = (
        "python from gdbext.control import kernel_breakpoints, registers; "
        "hosts = {a: s for b in kernel_breakpoints.breakpoints() for a, s in b.hosts.items()}; "
        "signature = next(iter(hosts.values())); "
        "print('here', [name for name, _, _ in registers.dwarf_parameters(signature, 0x1234, hosts)]); "
        "print('nowhere', registers.dwarf_parameters(signature, 0x1234, {}))"
    )
    said = gdb(
        ["llm-break -host paged_attention_v1_kernel", "run", "llm-launch -json", code], [compiled["debug"], "-ex", "set args 1"]
    )
    names = [a["name"] for a in said.json(2)["args"]]
    assert "scale" in names and f"here {names}" in said.outputs[3] and "nowhere None" in said.outputs[3]


def test_delete_takes_no_other_breakpoint_away_while_gdb_walks_its_list(gdb, tmp_path):
    """gdb 13 crashed at `delete` in a vLLM worker: the internal breakpoints were deleted as the last numbered one was."""
    note = "python gone = []; gdb.events.breakpoint_deleted.connect(lambda b: gone.append(b.number))"
    name, shown = "llm-break -host paged-attention", "python print(gone)"
    program = [small_program(tmp_path), "-ex", f"set args {tmp_path}/libkernels.so"]
    said = gdb(["catch syscall write", "run", name, note, "delete", shown, name, shown], program)
    walking, later = (json.loads(said.outputs[i].splitlines()[-1]) for i in (5, 7))
    assert walking == [1, 2, 3], said.text
    assert any(number < 0 for number in later), said.text


@pytest.mark.parametrize("program", ["stripped", "static-stripped"])
def test_a_stripped_program_that_runs_already(gdb, compiled, program):
    """Its kernels are registered before main: their names, and the launch functions of a runtime that is linked in, come from its
    code."""
    said = gdb(
        [
            "catch syscall write",
            "run",
            "delete",
            "llm-kernels -json",
            "llm-break -host -json paged_attention_v2_kernel",
            *["continue", "llm-launch -json"] * 2,
            "continue",
            "llm-break -json",
        ],
        [compiled[program], "-ex", "set args 2"],
    )
    kernels = {k["name"]: k for k in said.json(3)["kernels"]}
    assert (
        kernels["vllm::paged_attention_v2_kernel"]["where"] == "host"
        and kernels["vllm::paged_attention_v2_kernel"]["locations"][0]["kind"] == "registered"
    )
    assert {"flash::flash_fwd_kernel", "vllm::reshape_and_cache_flash_kernel"} <= set(kernels)
    assert {"cudaLaunchKernel", "cudaLaunchKernelExC"} <= {e["name"] for e in said.json(3)["entries"]}
    assert "cudaLaunchKernel" in {b["where"].split()[-1] for b in said.json(4)["breakpoints"]}
    found = stops(said)
    assert (
        [t["kernel"] for _, t in found] == ["paged_attention_v2_kernel"] * 2
        and all(same(a, t) for a, t in found)
        and '{"end": true}' in said.outputs[-2]
    )


@pytest.mark.every_gdb
def test_conditions_ignore_counts_and_another_kernel(gdb, compiled):
    said = gdb(
        [
            "break main",
            "run",
            "llm-break -host paged_attention_v1_kernel if grid.x == 8 and args[5] > 640 and stream == 5",
            "llm-break -host -json vllm::reshape_and_cache_flash_kernel",
            "ignore 4 2",
            "continue",
            *STOP * 4,
            "llm-break -json",
        ],
        [compiled["shared"], "-ex", "set args 3"],
    )
    found = stops(said)
    assert [(t["kernel"], t["args"][-2:]) for _, t in found if t["kernel"] != "paged_attention_v1_kernel"] == [
        ("reshape_and_cache_flash_kernel", [-4096, 16])
    ]
    assert [t["args"][5] for _, t in found if t["kernel"] == "paged_attention_v1_kernel"] == [641, 642]
    assert all(same(a, t) for a, t in found) and len(found) == 3
    assert {w["name"].split("::")[-1]: w["stops"] for w in said.json()["set"]} == {
        "paged_attention_v1_kernel": 2,
        "reshape_and_cache_flash_kernel": 1,
    }


def test_a_launch_without_clusters_fits_no_condition_on_them(gdb, compiled):
    said = gdb(
        ["break main", "run", "llm-break -host paged-attention if cluster.x == 2 and block.x == 256", "continue", *STOP * 2],
        [compiled["shared"], "-ex", "set args 2"],
    )
    assert [t["kernel"] for _, t in stops(said)] == ["flash_fwd_kernel"] * 2


def test_a_condition_that_cannot_be_answered_stops_and_says_why(gdb, compiled):
    said = gdb(
        [
            "break main",
            "run",
            "llm-break -host paged_attention_v1_kernel if args[99] == 1",
            "continue",
            "llm-launch -json",
            "llm-break -host x if ",
            "llm-break -host x if (",
        ],
        [compiled["shared"]],
    )
    assert "IndexError" in said.outputs[3] and same(said.json(4), truths(said.text)[0])
    assert "nothing behind 'if'" in said.outputs[5] and "cannot parse the condition" in said.outputs[6]


@pytest.mark.every_gdb
def test_trace_logs_and_goes_on(gdb, compiled):
    said = gdb(
        ["break main", "run", "llm-break -host -trace 4 paged-attention", "continue"], [compiled["shared"], "-ex", "set args 5"]
    )
    lines = [line for line in said.outputs[3].splitlines() if re.match(r"\[\d+\] ", line)]
    assert [line[:4] for line in lines] == ["[1] ", "[2] ", "[3] ", "[4] "] and '{"end": true}' in said.outputs[3]
    assert "grid (6,2,1) block (256,1,1) cluster (2,1,1) shared 65536 stream 0x5" in lines[2]
    assert said.outputs[3].count("llm-break paged-attention: over after 4 launches; the process runs on") == 1


@pytest.mark.every_gdb
@pytest.mark.parametrize("symbols", ["on", "off"])
def test_a_library_that_is_loaded_later_and_the_form_of_cuda_12(gdb, small, symbols):
    said = gdb(
        ["break main", "run", "llm-break -host -json paged_attention_v1_kernel", "continue", *STOP * 4, "llm-break -json"],
        [small, "-ex", "set args 2"],
        before=[f"set auto-solib-add {symbols}"],
    )
    assert said.json(2)["pending"] and said.json(2)["breakpoints"] == []
    found = stops(said)
    assert (
        len(found) == 4
        and all(same(a, t) for a, t in found)
        and {a["entry"] for a, _ in found} == {"cudaLaunchKernel", "cudaLaunchKernelExC"}
    )
    (cost,) = said.json()["set"]
    assert cost["launches_looked_at"] == 4


@pytest.mark.every_gdb
def test_driver_launches_are_known_by_the_name_they_were_asked_for_by(gdb, small):
    said = gdb(["llm-break -host kernel_unified_attention", "run", *STOP * 3], [small])
    found = stops(said)
    assert [a["entry"] for a, _ in found] == ["cuLaunchKernel", "cuLaunchKernelEx"] and all(same(a, t) for a, t in found)
    assert not found[0][0]["arguments_counted"] and all(a["raw"] for a in found[0][0]["args"])


@pytest.mark.every_gdb
def test_a_driver_that_hands_out_its_functions_by_name_is_followed(gdb, small):
    """As a runtime that is linked in gets them: neither they nor who calls them have symbols. A launch that passes two of them is
    one stop."""
    said = gdb(
        ["llm-break -host kernel_unified_attention", "run", *STOP * 3, "llm-break -json"],
        [os.path.join(os.path.dirname(small), "by_pointer")],
    )
    found = stops(said)
    assert (
        [t["grid"][0] for _, t in found] == [1, 2, 7]
        and all(same(a, t) for a, t in found)
        and '{"end": true}' in said.outputs[-2]
    )
    assert said.json()["set"][0]["stops"] == 3


def test_functions_handed_out_before_are_counted_not_guessed(gdb, small):
    said = gdb(["break ready", "run", "llm-break -host kernel_unified_attention", "continue", "llm-break"], [small])
    assert '{"end": true}' in said.outputs[3] and "without a known name passed" in said.outputs[4]


def test_several_threads_launch_at_once(gdb, small):
    said = gdb(
        ["llm-break -host paged_attention_v1_kernel", "run", *STOP * 20, "llm-break -json"], [small, "-ex", "set args 2 4"]
    )
    found = [a for a, _ in stops(said)]
    assert len(found) == 16 and {a["args"][3]["value"] for a in found if a["entry"] == "cudaLaunchKernel"} == {100, 101}
    assert said.json()["set"][0]["stops"] == 16


@pytest.mark.every_gdb
def test_the_kernel_is_the_innermost_frame(gdb, small):
    said = gdb(["llm-break -host paged_attention_v1_kernel", "run", "llm-bt -json", "llm-bt"], [small])
    frames = said.json(2)["threads"][0]["frames"]
    assert (frames[0]["kind"], frames[0]["grid"], frames[0]["block"]) == ("kernel", [8, 1, 1], [128, 1, 1])
    assert [f["function"] for f in frames[1:4]] == ["cudaLaunchKernel", frames[0]["function"], "attend"] and [
        f["level"] for f in frames[:4]
    ] == [0, 1, 2, 3]
    assert "about to be launched" in said.outputs[3]


def test_deleting_takes_the_hidden_parts_too(gdb, small):
    said = gdb(
        [
            "break ready",
            "run",
            "llm-break -host -json paged_attention_v1_kernel",
            "llm-break -delete",
            "maint info breakpoints",
            "llm-break",
            "llm-break -delete x",
            "llm-break -host paged_attention_v1_kernel",
            "delete",
            "llm-break",
            "maint info breakpoints",
            "continue",
        ],
        [small],
    )
    hidden = said.json(2)["breakpoints"][0]["address"][2:]
    for i in (4, 10):  # after delete they go with the next prompt or llm-break
        assert hidden not in said.outputs[i] and "paged_attention" not in said.outputs[i]
    assert (
        said.outputs[5] == "no llm-break is set"
        and "no llm-break x is set" in said.outputs[6]
        and '{"end": true}' in said.outputs[11]
    )


def test_what_cannot_be_is_one_line(gdb, small):
    said = gdb(
        [
            "llm-launch",
            "break main",
            "run",
            "llm-launch",
            "llm-break request",
            "llm-break (",
            "llm-break -host -trace 0 x",
            "llm-break -rank TP7 x",
        ],
        [small],
    )
    for i, word in {
        0: "no process",
        3: "is not at a launch",
        4: "no attached process runs",
        5: "no regular expression",
        6: "-trace 0",
        7: "TP7",
    }.items():
        assert word in said.outputs[i] and said.outputs[i].count("\n") == 0, said.outputs[i]


@pytest.mark.every_gdb
def test_another_process_gets_none_of_the_old_addresses(gdb, small):
    """Detached, then attached to the same program again: what was set for the first process is not put into the second, but set
    anew."""
    waiting = {"stdout": subprocess.PIPE, "env": {**os.environ, "WAIT": "1"}}
    with spawned([small, "3"], **waiting) as first, spawned([small, "3"], **waiting) as second:
        said = gdb(
            [
                "llm-break -host paged_attention_v1_kernel",
                "detach",
                f"attach {second.pid}",
                "llm-break",
                f"shell echo > /proc/{second.pid}/fd/0",
                "continue",
                "llm-launch -json",
            ],
            ["-p", str(first.pid)],
        )
        assert "Cannot insert" not in said.text and "Cannot access" not in said.text
        assert said.outputs[3].startswith("3, 4: paged_attention_v1_kernel") and "Breakpoint 3" in said.outputs[5]
        assert said.json(6)["args"][3]["value"] == 100


@pytest.mark.every_gdb
def test_a_core_taken_at_a_launch_says_the_same(gdb, small, tmp_path):
    core = str(tmp_path / "core")
    live = gdb(["llm-break -host paged_attention_v1_kernel", "run", "llm-launch -json", f"gcore {core}", "kill"], [small])
    dead = gdb(
        ["llm-launch -json", "llm-bt -json", "llm-kernels -json", "llm-break -host paged_attention_v1_kernel"],
        [small, "-c", core],
    )
    told, found = live.json(2), dead.json(0)
    for answer in (told, found):
        answer.pop("cost")
    assert told == found and same(found, truths(live.text)[0])
    assert dead.json(1)["threads"][0]["frames"][0]["kind"] == "kernel" and dead.json(2)["kernels"][0]["instances"] == 1
    assert "does not run" in dead.outputs[3] and dead.outputs[3].count("\n") == 0
