"""Boxes cover a tensor of any strides exactly once, and reading them gives what numpy's own view gives."""

import os
import random
import subprocess
import sys

import pytest
from harness.arrays import made

from gdbext.errors import GdbextError
from gdbext.torch import arrays, plot, small, stats
from gdbext.torch.compare import compare
from gdbext.torch.tensor import Quantizer

numpy = pytest.importorskip("numpy")


def views(count):
    rng = random.Random(5)
    base = numpy.arange(6000, dtype=numpy.int32)
    for _ in range(count):
        shape = [rng.randint(1, 7) for _ in range(rng.randint(0, 4))]
        full = [n * rng.randint(1, 3) for n in shape]
        size = int(numpy.prod(full)) if full else 1
        if size > 6000:
            continue
        view = base[:size].reshape(full)
        cut = tuple(slice(rng.randint(0, f - n), None, rng.randint(1, max(1, f // n))) for n, f in zip(shape, full))
        view = view[cut + (...,)].transpose(rng.sample(range(len(shape)), len(shape)))
        if rng.random() < 0.3 and view.ndim:
            view = numpy.broadcast_to(view, (3,) + view.shape)
        yield base, view


@pytest.mark.parametrize("piece,gap", [(1 << 20, 1 << 14), (64, 16), (16, 4), (256, 1 << 14), (4, 0)])
def test_boxes_tile_any_view(monkeypatch, piece, gap):
    monkeypatch.setattr(arrays, "PIECE", piece)
    monkeypatch.setattr(arrays, "GAP", gap)
    seen = 0
    for base, view in views(60):
        source = arrays.of_tensor(made(base, view))
        times, values = numpy.zeros(view.shape, int), numpy.full(view.shape, -1)
        for box in source.boxes():
            part = source.numbers(box)
            assert part.nbytes <= max(piece, 4)
            times[box] += 1
            values[box] = part
        assert (times == 1).all() and (values == view).all()
        seen += view.size
        if source.is_row_major and view.size:
            flat = numpy.concatenate([source.numbers(box).reshape(-1) for box in source.boxes()])
            assert (flat == view.reshape(-1)).all()
    assert seen > 1000


def test_a_box_cut_for_another_order_is_read_in_halves(monkeypatch):
    monkeypatch.setattr(arrays, "PIECE", 64)
    base = numpy.arange(6000, dtype=numpy.int32)
    view = base.reshape(60, 100).T
    source = arrays.of_tensor(made(base, view))
    assert (source.numbers((slice(0, 100), slice(3, 40))) == view[:, 3:40]).all()


def test_strides_that_reach_outside_the_storage_are_refused():
    base = numpy.arange(100, dtype=numpy.int32)
    tensor = made(base, base[:50])
    for stride, offset in ((3, 0), (1, 60), (-1, 10), (1 << 60, 0)):
        tensor.stride, tensor.storage_offset = (stride,), offset
        with pytest.raises(GdbextError, match="storage"):
            stats.statistics(arrays.of_tensor(tensor))


def test_channels_of_a_sliced_quantizer_follow_the_slice():
    base = numpy.arange(24, dtype=numpy.uint8)
    tensor = made(base, base.reshape(4, 6), "quint8")
    tensor.quantizer = Quantizer("per_channel_affine", [0.5, 1.0, 2.0, 4.0], [0, 3, 200, 1], 0)
    whole = (base.reshape(4, 6).astype(int) - [[0], [3], [200], [1]]) * [[0.5], [1.0], [2.0], [4.0]]

    def read(part):
        source = arrays.of_tensor(part)
        return numpy.concatenate([source.numbers(box) for box in source.boxes()])

    assert (read(tensor) == whole).all()
    assert (read(tensor.sliced("1:, ::2")) == whole[1:, ::2]).all()
    assert (read(tensor.sliced("2")) == whole[2]).all()


@pytest.mark.parametrize("kind", ["float64", "float32", "int64", "bool", "complex128"])
def test_a_few_elements_have_the_same_statistics_without_numpy(kind):
    rng = numpy.random.default_rng(7)
    for _, (_, view) in zip(range(12), views(60)):
        base = rng.integers(-3, 4, 6000).astype(kind)
        if kind.startswith(("float", "complex")):
            factors = rng.choice([1, 0.1, numpy.nan, numpy.inf, -numpy.inf], 6000, p=[0.4, 0.4, 0.05, 0.1, 0.05])
            with numpy.errstate(invalid="ignore"):
                base = (base * factors).astype(kind)
        strides = tuple(s // view.itemsize * base.itemsize for s in view.strides)
        own = numpy.lib.stride_tricks.as_strided(base, view.shape, strides)
        tensor = made(base, own, kind)
        with numpy.errstate(all="ignore"):
            truth, _ = stats.statistics(arrays.of_tensor(tensor))
        values = small.elements(tensor)
        said = small.statistics(values, tensor.dtype.kind)
        assert set(said) == set(truth)
        assert said == pytest.approx(truth, rel=1e-12, abs=1e-12, nan_ok=True) if kind != "complex128" else said == truth
        if kind != "complex128":
            assert small.infinities(values) == stats.infinities(arrays.of_tensor(tensor))


def test_many_elements_are_not_decoded_one_by_one():
    base = numpy.zeros(small.SMALL + 1)
    assert small.is_small(made(base, base[:-1], "float64")) and not small.is_small(made(base, base, "float64"))
    with pytest.raises(GdbextError, match="without numpy"):
        small.elements(made(base, base, "float64"))


def test_moments_of_pieces_are_those_of_the_whole(monkeypatch):
    monkeypatch.setattr(arrays, "PIECE", 256)
    values = numpy.random.default_rng(1).normal(1e6, 1e-3, 5000)
    values[[3, 700]] = numpy.nan, -numpy.inf
    finite = values[numpy.isfinite(values)]
    found, _ = stats.statistics(arrays.of_tensor(made(values, values, "float64")))
    assert (found["nan"], found["inf"], found["min"], found["max"]) == (1, 1, finite.min(), finite.max())
    assert abs(found["std"] / finite.std(ddof=1) - 1) < 1e-6 and abs(found["mean"] / finite.mean() - 1) < 1e-14
    hist = stats.histogram(arrays.of_tensor(made(values, values, "float64")), found["min"], found["max"], 7)
    assert sum(hist["counts"]) == 4998 and len(hist["edges"]) == 8


def test_float64s_whole_range_has_a_histogram():
    values = numpy.array([-1.7e308, 0.0, 1.7e308])
    hist = stats.histogram(arrays.of_tensor(made(values, values, "float64")), -1.7e308, 1.7e308, 3)
    assert hist["counts"] == [1, 1, 1]


def test_two_float4_values_of_a_byte_are_both_counted():
    base = numpy.array([0x21, 0xF0], numpy.uint8)
    found, _ = stats.statistics(arrays.of_tensor(made(base, base, "float4_e2m1fn_x2")))
    assert (found["min"], found["max"], found["zeros"], found["count"]) == (-6.0, 1.0, 1, 4)


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "complex64", "int32"])
def test_repeated_elements_are_read_once_and_counted_each_time(kind):
    """As of a tensor that was really repeated; and 2 ** 36 of them at once."""
    own = numpy.array([1.5, -2.0, 0.0, 7.0], "f4")
    own = (own.view("u4") >> 16).astype("u2") if kind == "bfloat16" else own.astype(kind)
    small = numpy.broadcast_to(own, (6, 5, 4))
    copied = numpy.ascontiguousarray(small)
    truth = stats.statistics(arrays.of_tensor(made(copied.reshape(-1), copied, kind)))
    said = stats.statistics(arrays.of_tensor(made(own, small, kind)))
    assert said == ({k: pytest.approx(v) for k, v in truth[0].items()}, False)
    great = arrays.of_tensor(made(own, numpy.broadcast_to(own, (1 << 17, 1 << 17, 4)), kind))
    read = []
    great.read = lambda box, read_box=great.read: read.append(box) or read_box(box)
    found, sampled = stats.statistics(great)
    assert found["count"] == 1 << 36 and found["zeros"] == (truth[0]["zeros"] // 30) << 34 and not sampled
    assert not stats.has_nan(great) and len(read) <= 2
    if kind != "complex64":
        assert sum(stats.histogram(great, found["min"], found["max"], 3)["counts"]) == 1 << 36


def test_repeated_elements_compare_and_are_drawn_at_once():
    own, other = numpy.array([1.0, 2.0, 3.0]), numpy.array([1.0, 2.5, numpy.nan])
    shape = (1 << 18, 3, 1 << 18)
    a, b = (arrays.of_tensor(made(x, numpy.broadcast_to(x[:, None], shape), "float64")) for x in (own, other))
    found = compare(a, b)
    assert (found["different"], found["nan_different"], found["first_index"]) == (2 << 36, 1 << 36, [0, 1, 0])
    cells, marks = plot.cells(b)
    assert max(cells.shape) <= plot.SIDE * 3 and marks[0].any() and not marks[1].any()
    flat = arrays.of_tensor(made(own, own, "float64"))
    assert compare(flat, arrays.of_tensor(made(own[:1], numpy.broadcast_to(own[:1], (3,)), "float64")))["different"] == 2


def test_channels_of_a_repeated_quantized_element_are_different_numbers():
    stored = numpy.array([3], "i1")
    t = made(stored, numpy.broadcast_to(stored, (2,)), "qint8")
    t.quantizer = Quantizer("per_channel_affine", [1.0, 0.5], [0, 1], axis=0)
    found, _ = stats.statistics(arrays.of_tensor(t))
    assert (found["min"], found["max"], found["count"]) == (1.0, 3.0, 2)


def test_numpy_is_loaded_with_one_thread():
    code = "import os; from gdbext.session.optional_packages import need; need('numpy', '-stats')\n"
    code += "print(len(os.listdir('/proc/self/task')), 'OPENBLAS_NUM_THREADS' in os.environ)"
    clean = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True, env=clean)
    assert done.stdout == "1 False\n"
