"""Work with the values of a process's tensors: statistics, histogram, files, comparison; the subject says what is true."""

import json
import math

import pytest

from gdbext.errors import GdbextError
from gdbext.torch import stats
from gdbext.torch.arrays import of_tensor
from test_tensors import LAZY, ask, running

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
    assert seen >= {"bool", "uint8", "int64", "uint64", "float16", "bfloat16", "float32", "float64", "complex32", "complex64",
                    "float8_e5m2", "float8_e4m3fn", "float8_e4m3fnuz", "qint8", "quint8"}  # fmt: skip


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
    text = ask(subject, "-stats -hist small").people()
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
