"""Work with the values of a process's tensors: statistics, histogram, files, comparison; the subject says what is true."""

import json
import math
import os
import re
import subprocess

import pytest
from harness.tensors import LAZY, ask
from harness.tensors import tensors as running

from gdbext.commands.pytensor import PyTensor
from gdbext.engines.processes import ProcessRef
from gdbext.errors import GdbextError
from gdbext.session.session import Session
from gdbext.torch import files, small, stats
from gdbext.torch.arrays import of_tensor

numpy = pytest.importorskip("numpy")


@pytest.fixture(scope="module")
def subject(torch_python, tmp_path_factory):
    with running(torch_python, tmp_path_factory.mktemp("values")) as found:
        yield found


def close(found, truth, scale):
    if isinstance(truth, float) and math.isnan(truth):
        return math.isnan(found)
    return math.isclose(found, truth, rel_tol=1e-9, abs_tol=1e-12 * scale)


def test_statistics_of_every_tensor_are_what_torch_computes(subject):
    wrong, seen = {}, set()
    for name, truth in subject.tensors.items():
        if truth["stats"] is None:
            continue
        found, sampled = stats.statistics(of_tensor(subject.read(name)))
        seen.add(truth["dtype"].replace("torch.", ""))
        scale = max([1.0] + [abs(truth["stats"][k]) for k in ("min", "max") if math.isfinite(truth["stats"].get(k, math.nan))])
        bad = {k: (found[k], v) for k, v in truth["stats"].items() if not close(found[k], v, scale)}
        if bad or sampled or found["count"] != truth["numel"]:
            wrong[name] = bad
    assert not wrong
    assert seen >= {
        "bool",
        "uint8",
        "int64",
        "uint64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "complex32",
        "complex64",
        "float8_e5m2",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "qint8",
        "quint8",
    }


def test_a_search_for_nan_finds_those_that_have_one(subject):
    truth = {n: bool(t["stats"]["nan"]) for n, t in subject.tensors.items() if t["stats"] is not None and "quint" not in n}
    assert {n: stats.has_nan(of_tensor(subject.read(n))) for n in truth} == truth
    assert len(set(truth.values())) == 2


def test_statistics_of_a_slice_and_of_a_per_channel_quantized_tensor(subject):
    data = ask(subject, "-stats -hist -bins 4 -slice 2:9:3,::5 tensors['32 x 32 ints']").data
    own = numpy.arange(-512, 512).reshape(32, 32)[2:9:3, ::5]
    assert (data["stats"]["min"], data["stats"]["max"], data["stats"]["count"]) == (own.min(), own.max(), own.size)
    assert math.isclose(data["stats"]["std"], own.std(ddof=1)) and data["stats"]["mean"] == own.mean()
    counts, edges = numpy.histogram(own, 4)
    assert data["hist"]["counts"] == counts.tolist() and numpy.allclose(data["hist"]["edges"], edges)
    assert data["sampled"] is False


def test_a_big_cache_passes_in_small_pieces_and_a_sample_reads_less(subject):
    tensor = subject.read("huge kv")
    read = []
    original = tensor.target.read
    tensor.target.read = lambda address, size: read.append(size) or original(address, size)
    try:
        found, sampled = stats.statistics(of_tensor(tensor))
        whole, most = sum(read), max(read)
        part, part_sampled = stats.statistics(of_tensor(tensor), sample=1 << 20)
    finally:
        del tensor.target.read
    assert (found["count"], sampled, found["nan"]) == (tensor.numel, False, 0)
    assert whole == tensor.storage_bytes and most <= 1 << 20
    assert part_sampled and part["count"] <= 1 << 20 and sum(read) - whole < whole // 8


def test_json_of_statistics_is_the_contracts(subject):
    answer = ask(subject, "-stats tensors['mul'] -json")
    data = json.loads(answer.json("pytensor"))
    assert {"min", "max", "mean", "std", "nan", "inf", "zeros"} <= set(data["stats"]) and data["sampled"] is False
    data = json.loads(ask(subject, "-stats tensors['complex'] -json").json("pytensor"))
    assert data["stats"]["min"] is None and data["stats"]["nan"] == 0
    data = json.loads(ask(subject, "-stats -sample 100 -json kv_cache").json("pytensor"))
    assert data["sampled"] is True and any("sampled" in p for p in data["partial"])
    text = ask(subject, "-stats -hist small").to_text()
    assert "mean" in text and "#" in text and "tensor(" not in text


@pytest.mark.parametrize(
    "line,said",
    [
        ("-stats tensors['meta']", "no values"),
        ("-stats tensors['resized away']", "given back"),
        ("-stats tensors['bits8']", "holds bits, no numbers"),
        ("-hist tensors['complex']", "no order"),
        ("-hist -bins 0 small", "0 bins"),
        ("-stats -sample 0 small", "at least one"),
    ],
)
def test_what_has_no_statistics_is_refused_in_one_line(subject, line, said):
    with pytest.raises(GdbextError, match=said) as e:
        ask(subject, line)
    assert "\n" not in str(e.value)


def test_in_gdb_the_statistics_are_the_same(gdb, subject):
    said = gdb(["pytensor -stats -json tensors['mix 3']", "pytensor -stats -json small"], ["-p", str(subject.pid)], before=LAZY)
    if "needs numpy" in said.text:
        pytest.skip("this gdb's Python has no numpy: scripts/test installs it")
    for i, name in enumerate(["mix 3", "big strided"]):
        truth, found = subject.tensors[name]["stats"], said.json(i)["stats"]
        assert all(close(float(found[k]), v, 1e9) for k, v in truth.items()), (found, truth)


# ---- files and comparison ----------------------------------------------------------------------------------------------
LOAD = """
import json, sys, numpy, torch
from safetensors.torch import load_file
found = {}
for path in sys.argv[1:]:
    if path.endswith(".pt"):
        t = torch.load(path, weights_only=True)
    elif path.endswith(".npy"):
        t = torch.from_numpy(numpy.load(path))
    else:
        t = load_file(path)["tensor"]
    found[path] = [str(t.dtype), list(t.shape), repr(t)]
print(json.dumps(found))
"""
WORKED_OUT = ("conj", "conj imag (neg)", "quantized")
SAVED = [
    "float32 randn (7, 11)",
    "transposed",
    "expanded",
    "conj",
    "conj imag (neg)",
    "bfloat16 randn (7, 11)",
    "float16 randn (3, 4)",
    "quantized",
    "bool bits (3, 4)",
    "int64 bits (5,)",
    "uint16 bits (3, 4)",
    "complex",
    "complex double",
    "float8_e4m3fn matrix",
    "float8_e5m2 all",
    "float8_e8m0fnu all",
    "float8_e4m3fnuz matrix",
    "0-size 4-D",
    "bool 0-d",
    "parameter",
    "channels last",
    "permuted 6-D",
    "complex32 bits (5,)",
    "float4",
]


@pytest.mark.parametrize("with_numpy", [True, False])
def test_plain_torch_numpy_and_safetensors_load_what_is_saved(subject, torch_python, tmp_path, monkeypatch, with_numpy):
    """Without numpy too: all that are small, but for those whose values have to be worked out."""
    if not with_numpy:
        monkeypatch.setattr(small, "has_numpy", lambda tensor: False)
    written = {}
    for i, name in enumerate(n for n in SAVED if n in subject.tensors):
        for kind in (".npy", ".safetensors", ".pt"):
            path = str(tmp_path / f"{i}{kind}")
            try:
                data = ask(subject, f"-save {path} tensors[{name!r}]").data["saved"]
            except GdbextError as e:
                assert (
                    "has no torch." in str(e)
                    and kind != ".pt"
                    or not with_numpy
                    and name in WORKED_OUT
                    and "numpy for it" in str(e)
                )
                continue
            written[path] = name, data["dtype"]
    done = subprocess.run([torch_python, "-W", "ignore", "-c", LOAD, *written], stdout=subprocess.PIPE, text=True, check=True)
    loaded = json.loads(done.stdout)
    wrong = {}
    for path, (name, dtype) in written.items():
        truth = subject.tensors[name]
        bare = re.sub(r", (grad_fn=<\w+>|requires_grad=True|device='cpu')", "", truth["repr"])
        bare = re.sub(r"^Parameter containing:\n", "", bare)
        expected = [dtype, truth["shape"], None if name == "quantized" else bare]
        got = loaded[path][:2] + [None if name == "quantized" else loaded[path][2]]
        if got != expected:
            wrong[name, path[-5:]] = got, expected
    assert not wrong
    assert len({n for n, _ in written.values()}) > (20 if with_numpy else 17) and len(written) > 45


def test_the_library_s_own_files_compare_equal_to_the_process(subject, torch_python, tmp_path, monkeypatch):
    make = (
        "import sys, torch, numpy; from safetensors.torch import save_file; f = sys.argv[1]\n"
        "t = torch.arange(-512, 512).reshape(32, 32); torch.save(t.t(), f + '/a.pt'); "
        "save_file({'x': t, 'y': t + 1}, f + '/a.safetensors')\n"
        "numpy.save(f + '/a.npy', t.numpy()); torch.save({'w': "
        "torch.nn.Parameter(t.float()), 'l': [t.bfloat16()]}, f + '/b.pt')\n"
        "torch.save(torch.nn.Linear(4, 3).state_dict(), f + '/state.pt')\n"
        "torch.save(t, f + '/old.pt', _use_new_zipfile_serialization=False)\n"
    )
    subprocess.run([torch_python, "-c", make, str(tmp_path)], check=True)
    name = "tensors['32 x 32 ints']"
    for other, equal in (
        ("a.safetensors:x", True),
        ("a.safetensors:y", False),
        ("a.npy", True),
        ("b.pt:w", True),
        ("a.pt", False),
    ):
        found = ask(subject, f"-compare {tmp_path}/{other} {name}").data["compare"]
        assert found["equal"] is equal, other
    assert found["different"] == 32 * 31 and found["first_index"] == [0, 1] and found["max_abs_diff"] == 31 * 31
    found = ask(subject, f"-compare {tmp_path}/a.safetensors:y {name}").data["compare"]
    assert (found["different"], found["first_index"], found["max_abs_diff"]) == (1024, [0, 0], 1)
    assert files.read(f"{tmp_path}/state.pt", "weight").shape == (3, 4)  # a state_dict carries _metadata
    with pytest.raises(GdbextError, match="old format"):
        ask(subject, f"-compare {tmp_path}/old.pt {name}")
    with pytest.raises(GdbextError, match="holds 2 tensors"):
        ask(subject, f"-compare {tmp_path}/b.pt {name}")
    with pytest.raises(GdbextError, match="there is no file"):
        ask(subject, f"-compare {tmp_path}/none.pt {name}")
    monkeypatch.chdir(tmp_path)  # a file is meant by a path with a slash
    assert ask(subject, f"-compare ./a.npy {name}").data["compare"]["equal"] is True
    for bare in ("a.npy", "a.safetensors:x", "b.pt:w"):
        with pytest.raises(GdbextError, match=rf"is the file of that name meant\? \./{bare}"):
            ask(subject, f"-compare {bare} {name}")
    with pytest.raises(GdbextError) as raised:
        ask(subject, f"-compare none.npy {name}")
    assert "meant?" not in str(raised.value)


def test_another_expression_another_process_and_a_slice_compare(subject, torch_python, tmp_path):
    assert ask(subject, "-compare tensors['mul'] tensors['mul']").data["compare"]["equal"]
    with running(torch_python, tmp_path) as other:  # the same seeds: the same tensors
        line = f"-compare {other.pid}:tensors['transposed'] tensors['transposed'] -json"
        data = json.loads(ask(subject, line).json("pytensor"))
        assert data["compare"]["equal"] is True and data["partial"] == ["unstopped"]
        data = ask(subject, f"-slice 1,:,2 -compare {other.pid}:tensors['transposed'] tensors['transposed']").data
        assert data["compare"]["equal"] is True and data["shape"] == (3, 2)
        data = ask(subject, f"-compare {other.pid}:tensors['mm'] tensors['parameter']").data["compare"]
        assert data["different"] is None and "shapes differ" in data["reason"]
    text = ask(subject, "-compare tensors['real'] tensors['conj']").to_text()
    assert "different" in text or "shapes" in text


def test_without_numpy_gdb_says_the_line_that_installs_it(gdb, subject, tmp_path):
    said = gdb(
        [
            "python import importlib.util; print(importlib.util.find_spec('numpy'))",
            "pytensor -hist small",
            "pytensor -repr small",
            f"pytensor -save {tmp_path}/a.pt small",
            "pytensor -stats small",
            "pyprint small.min(), small.max(), small.mean()",
        ],
        ["-p", str(subject.pid)],
        before=LAZY,
        env={"GDBEXT_DATA": str(tmp_path)},
    )
    if said.outputs[0] != "None":
        pytest.skip("this gdb's own Python brings numpy")
    assert re.match(r"pytensor: -hist needs numpy, .*; run: python3 -m pip install --target \S+ .*numpy$", said.outputs[1])
    assert said.outputs[2].startswith(subject.tensors["big strided"]["repr"])  # what needs none still works
    assert "saved to" in said.outputs[3] and os.path.getsize(f"{tmp_path}/a.pt") > 100
    assert "  min " in said.outputs[4] and "(" in said.outputs[5] and "numpy" not in said.outputs[4] + said.outputs[5]


def test_a_core_is_compared_with_the_process_it_came_from(gdb, subject, tmp_path):
    core = str(tmp_path / "core")
    said = gdb(
        [
            f"generate-core-file {core}",
            f"pytensor -json -compare {core}:tensors['transposed'] tensors['transposed']",
            f"pytensor -json -compare {core}:tensors['conj'] tensors['complex']",
        ],
        ["-p", str(subject.pid)],
        before=LAZY,
    )
    if "needs numpy" in said.text:
        pytest.skip("this gdb's Python has no numpy: scripts/test installs it")
    assert said.json(1)["compare"]["equal"] is True and said.json(1)["partial"] == []
    found = said.json(2)["compare"]
    assert found["equal"] is False and found["different"] == 12 and found["first_index"] == [0, 0] and found["max_abs_diff"] > 0


def test_a_picture_is_drawn_or_the_line_that_installs_matplotlib_is_said(subject, tmp_path):
    path = str(tmp_path / "kv.png")
    try:
        answer = ask(subject, f"-plot {path} tensors['mix 3']")
    except GdbextError as e:
        assert re.match(r"-plot needs matplotlib, .*; run: .*pip install matplotlib$", str(e))
        return
    assert answer.data["plot"] == path
    with open(path, "rb") as f:
        assert f.read(8) == b"\x89PNG\r\n\x1a\n"


def test_several_processes_are_each_asked_and_one_that_has_it_not_is_said(subject, monkeypatch):
    """FAKE: `-on both` names the subject twice and a process without Python, as `-on all` names an engine's."""
    named = [ProcessRef(pid, label) for label, pid in (("A", subject.pid), ("B", subject.pid), ("C", 1))]
    resolve = Session.resolve
    monkeypatch.setattr(Session, "resolve", lambda self, what: named if what == "both" else resolve(self, what))

    def asked(line):
        return PyTensor().answer(Session(), PyTensor.parse(line + " -on both"))

    answer = asked("-stats -compare tensors['complex'] tensors['conj']")
    assert [rank["label"] for rank in answer.data["ranks"]] == ["A", "B"]
    alone = ask(subject, "-stats -compare tensors['complex'] tensors['conj']").data
    for rank in answer.data["ranks"]:
        assert (rank["stats"], rank["compare"]) == (alone["stats"], alone["compare"]) and rank["compare"]["different"] == 12
    assert [why.partition(":")[0] for why in answer.partial if ":" in why] == ["C"] and answer.to_text().startswith("A: ")
    with pytest.raises(GdbextError, match="write one file"):
        asked("-save /tmp/x.npy tensors['conj']")
