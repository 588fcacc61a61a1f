"""Python breakpoints in real, unmodified engines with two ranks: a stop in the scheduler's step by a condition on a request,
steps, a thousand logged passes, the presets; afterwards the engine answers every request that was in flight."""

import json
import re
import time

import pytest
from harness.engines import pid_of
from harness.gdb_run import run_gdb

from gdbext.access import debug_registers, ptrace

PASSES = 50  # scripts/matrix counts thousands, on stand-ins

# `wanted`: true for a request that comes for sure, once it has got somewhat further
PLACES = {
    "vllm": {
        "title": "VLLM::EngineCore",
        "step": "Scheduler.schedule",
        "caller": "EngineCore.step",
        "wanted": 'any("request-{later}-" in r.request_id and r.num_computed_tokens > 40 for r in self.running)',
        "batch": "len(self.running)",
        "id": "self.running[0].request_id",
    },
    "sglang": {
        "title": "sglang::scheduler_TP0",
        "step": "Scheduler.run_batch",
        "caller": "wrapper",  # a decorator
        "wanted": 'any("request-1-" in r.rid and len(r.output_ids) == 41 for r in batch.reqs)',
        "batch": "len(batch.reqs)",
        "id": "batch.reqs[0].rid",
    },
}


def eventually(ask, what, seconds=300):
    end = time.monotonic() + seconds
    while not ask():
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(0.05)


def answers_all(engine, ids):
    """Every request of `ids` (an engine may have appended to them) is answered, and others after them."""
    before = engine.answered()[1]
    outer = [re.sub(r"^(request-\d+)-[0-9a-f]{8}$", r"\1", i) for i in ids]
    eventually(lambda: set(outer) <= set(engine.finished()), f"the answers to {outer}")
    eventually(lambda: engine.answered()[1] > before + len(outer), "more answers")


def asking(engine, command):
    """A gdb command with {later} in it: the number of a request that vLLM does not have yet. It is known once the engine stands
    still."""
    tokens = engine.ready_file + ".tokens"
    return (  # four are there, two more may be under way
        f"python LATER = int.from_bytes(open({tokens!r}, 'rb').read(16)[8:], 'little') + 6; "
        f"gdb.execute({command!r}.format(later=LATER))"
    )


def in_flight(text):
    return [r["request_id"] for r in json.loads(text)["requests"] if r["queue"] == "running"]


@pytest.mark.drawn(1)
@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_stop_on_a_request_step_log_each_pass_and_go_on(running, name, gdb_path):
    engine, at = running.get(name), PLACES[name]
    pid = pid_of(engine, at["title"])
    commands = [
        f"llm-attach -libraries none {pid}",
        asking(engine, f"pybreak {at['step']} if {at['wanted']}"),
        "llm-continue",
        f"python gdb.execute(('pyprint ' + {at['wanted']!r}).format(later=LATER))",
        "pylocals -json",
        "pynext -json",
        "pystep -json",
        "pyfinish -json",
        "delete",
    ]
    commands += [
        f'pylog {at["step"]} "{{{at["batch"]}}} {{{at["id"]}}}"',
        f"pybreak -count {PASSES} {at['step']}",
        "llm-continue",
        "pylog -json",
        "llm-requests -json",
        "delete",
        "llm-detach",
    ]
    said = run_gdb(gdb_path, commands)
    out = said.outputs
    assert re.search(rf"^pybreak 1: {at['step']} at .*, hit 1$", out[2], re.M), out[2]
    assert out[3] == "True" and "self" in [v["name"] for v in said.json(4)["locals"]]
    stepped = [said.json(i)["frame"] for i in (5, 6, 7)]
    assert stepped[0]["function"] == at["step"] and stepped[2]["function"].endswith(at["caller"]), stepped
    assert re.search(rf"^pybreak 3: {at['step']} at .*, hit {PASSES}$", out[11], re.M), out[11][-500:]
    lines = re.findall(r"^[\d:.]+ \S+ \d+ \w+\.py:\d+  (\d+) '(request-\S+)'$", out[11], re.M)
    events = said.json(12)["events"]
    assert len(lines) == len(events) == PASSES and all(0 < int(n) <= 4 for n, _ in lines)
    assert said.status == 0, said.text[-500:]
    print(f"\n{name}: pauses {out[0]} ... {out[-1]}")
    with ptrace.Stopped(pid) as stopped:
        assert stopped.threads and not any(debug_registers.clear_debug_registers(t) for t in stopped.threads)
    answers_all(engine, in_flight(out[13]))


@pytest.mark.drawn(1)
@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_the_presets_step_and_request(running, name, gdb_path):
    engine, at = running.get(name), PLACES[name]
    pid = pid_of(engine, at["title"])
    commands = [f"llm-attach -libraries none {pid}", "llm-break step", "llm-continue", "delete"]
    which = "request-{later}" if name == "vllm" else "request-2-"
    commands += [asking(engine, f"llm-break request {which}"), "llm-continue"] + (["llm-continue"] if name == "vllm" else [])
    commands += ["llm-requests -json", "delete", "llm-detach"]
    said = run_gdb(gdb_path, commands)
    out = said.outputs
    assert re.search(rf"^llm-break 1: {at['step']} at .*, hit 1$", out[2], re.M), out[2]
    if name == "vllm":
        assert "Scheduler.update_from_output at" in out[5] and "Scheduler._free_request at" in out[6], out[5:7]
    else:
        assert "Scheduler.run_batch at" in out[5], out[5]
    answers_all(engine, in_flight(out[-3]))


@pytest.mark.drawn(1)
@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_nan_stops_the_rank_that_samples_from_it(running, name, truth, gdb_path):
    """A NaN in one weight of the running model, put there behind its back and taken away again."""
    engine = running.get(name)
    pid = pid_of(engine, {"vllm": "VLLM::Worker_TP0", "sglang": "sglang::scheduler_TP0"}[name])
    model = {"vllm": "self.worker.worker.model_runner.model", "sglang": "self.tp_worker.model_runner.model"}[name]
    norm = f"{model}._modules['model']._modules['norm']._parameters['weight']"
    frame = {"vllm": "worker_busy_loop", "sglang": "event_loop_normal"}[name]
    find = (
        f"python import json; F = json.loads(gdb.execute('pybt -json', to_string=True))['threads'][0]['frames']; "
        f"gdb.execute('pyframe %d' % next(f['level'] for f in F if f['function'].endswith('{frame}')))"
    )
    plant = (
        "python import struct; A = int(json.loads(gdb.execute('pytensor -json %s' % E, "
        "to_string=True))['data_ptr'], 16); M = open('/proc/%d/mem' % P, 'r+b', buffering=0); M.seek(A); OLD = "
        "M.read(4); M.seek(A); M.write(struct.pack('<f', float('nan')))"
    )
    commands = [
        f"llm-attach -libraries none {pid}",
        find,
        f"python E = {norm!r}; P = {pid}",
        "llm-break nan",
        plant,
        "llm-continue",
        "pybt",
        "delete",
        "python M.seek(A); print(M.write(OLD))",
        "llm-detach",
    ]
    said = run_gdb(gdb_path, commands)
    out = said.outputs
    print(f"\n{name}:", "\n".join(out[3:7]))
    assert re.search(r"holds \d+ NaN, 0 infinite of \d+", out[5]) and out[8] == "4", out
    assert {"vllm": "._sample at", "sglang": "ModelRunner.sample at"}[name] in out[5]
    before = engine.answered()[1]
    eventually(lambda: engine.answered()[1] > before + 4, "answers without NaN")
