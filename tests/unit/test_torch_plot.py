"""The heat map's cells, and the picture where matplotlib is."""

import sys

import pytest
from harness.arrays import made

from gdbext.errors import GdbextError
from gdbext.session import optional_packages as wheels
from gdbext.torch import arrays, plot

numpy = pytest.importorskip("numpy")


def source(values, view=None):
    values = numpy.asarray(values)
    return arrays.of_tensor(made(values.reshape(-1), values if view is None else view, values.dtype.name))


def test_small_tensors_have_a_cell_per_element():
    values = numpy.arange(24.0).reshape(2, 3, 4)
    shown, marks = plot.cells(source(values))
    assert (shown == values.reshape(6, 4)).all() and not any(m.any() for m in marks)
    assert plot.cells(source(numpy.array(2.5)))[0].tolist() == [[2.5]]
    assert plot.cells(source(numpy.arange(5)))[0].tolist() == [[0, 1, 2, 3, 4]]


def test_a_single_nan_in_a_large_tensor_is_marked(monkeypatch):
    monkeypatch.setattr(plot, "SIDE", 10)
    monkeypatch.setattr(arrays, "PIECE", 1000)
    values = numpy.random.default_rng(2).normal(size=(7, 33, 95)).astype("f4")
    values[6, 32, 94], values[0, 0, 1], values[3, 16, 50] = numpy.nan, numpy.inf, -numpy.inf
    for view in (None, values.transpose(2, 0, 1)):
        shown, marks = plot.cells(source(values, view))
        assert max(shown.shape) <= 10 and [int(m.sum()) for m in marks] == [1, 1, 1]
    shown, marks = plot.cells(source(values))
    assert shown[0, 0] == values[0, 0, 0] and marks[0][-1, -1] and marks[1][0, 0]


def test_a_missing_package_is_one_line_that_installs_it(monkeypatch):
    monkeypatch.delitem(sys.modules, "gdb", raising=False)  # tests/gdb is taken for it where an earlier test asked for gdb
    with pytest.raises(GdbextError, match="-plot needs no_such_wheel, .* run: .*pip install no_such_wheel$") as e:
        wheels.need("no_such_wheel", "-plot")
    assert "\n" not in str(e.value)


def test_the_picture_is_written_whole_and_not_over_another(tmp_path):
    pytest.importorskip("matplotlib")
    values = numpy.array([[1.0, numpy.nan], [numpy.inf, -2.0]])
    path = str(tmp_path / "a.png")
    plot.plot(source(values), {"edges": [-2.0, 0.0, 1.0], "counts": [1, 1]}, "t", path)
    with open(path, "rb") as f:
        assert f.read(8) == b"\x89PNG\r\n\x1a\n"
    with pytest.raises(GdbextError, match="there already"):
        plot.plot(source(values), None, "t", path)
    plot.plot(source(values), None, "t", path, force=True)
    with pytest.raises(GdbextError, match="must end in"):
        plot.plot(source(values), None, "t", str(tmp_path / "a.xyz"))
    with pytest.raises(GdbextError, match="without elements"):
        plot.plot(source(numpy.zeros((0, 3))), None, "t", str(tmp_path / "b.png"))
