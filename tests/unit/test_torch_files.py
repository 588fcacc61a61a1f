"""Tensor files: what is written is read back, damaged and hostile ones end in one line."""

import io
import json
import os
import pickle
import random
import struct
import time
import tracemalloc
import zipfile

import pytest
from harness.arrays import made

from gdbext.errors import GdbextError
from gdbext.torch import arrays, dtypes, files
from gdbext.torch.compare import compare

numpy = pytest.importorskip("numpy")
ALL = [
    "bool",
    "uint8",
    "int8",
    "uint16",
    "int16",
    "uint32",
    "int32",
    "uint64",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
    "complex32",
    "float8_e5m2",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e8m0fnu",
]


def tensor(dtype, shape=(7, 5), transposed=False):
    kind = arrays.stored_dtype(dtypes.DTYPES[dtype])
    raw = numpy.random.default_rng(1).integers(
        0, 2 if dtype == "bool" else 120, int(numpy.prod(shape)) * kind.itemsize, numpy.uint8
    )
    base = raw.view(kind)
    view = base.reshape(shape)
    return made(base, view.T if transposed else view, dtype)


@pytest.mark.parametrize("kind", files.KINDS)
@pytest.mark.parametrize("dtype", ALL)
def test_what_is_saved_reads_back_equal(tmp_path, dtype, kind):
    for i, (shape, transposed) in enumerate((((7, 5), False), ((7, 5), True), ((), False), ((0, 3), False), ((3, 1, 4), True))):
        path, t = str(tmp_path / f"{i}{kind}"), tensor(dtype, shape, transposed)
        known = {".npy": files._NPY, ".safetensors": files._SAFETENSORS, ".pt": dtypes.DTYPES}[kind]
        if dtype not in known:
            with pytest.raises(GdbextError, match=f"has no torch.{dtype}"):
                files.save(t, path)
            assert os.listdir(tmp_path) == []
            return
        size, said = files.save(t, path)
        assert (size, said) == (os.path.getsize(path), "torch." + dtype)
        back, source = files.read(path), arrays.of_tensor(t)
        assert (back.shape, back.dtype.name) == (t.shape, dtype)
        found = compare(source, back)
        assert found["compared"] == source.numel and found["equal"] is (True if source.numel else None)
        for box in source.boxes():
            assert source.read(box).tobytes() == back.read(box).tobytes()


def test_a_file_that_is_there_is_kept_unless_forced(tmp_path):
    path = str(tmp_path / "a.npy")
    files.save(tensor("int32"), path)
    before = open(path, "rb").read()
    with pytest.raises(GdbextError, match="there already; -force replaces"):
        files.save(tensor("uint8"), path)
    assert open(path, "rb").read() == before and os.listdir(tmp_path) == ["a.npy"]
    files.save(tensor("uint8"), path, force=True)
    assert files.read(path).dtype.name == "uint8"
    with pytest.raises(GdbextError, match="no folder that can be written to"):
        files.save(tensor("uint8"), str(tmp_path / "no" / "a.npy"))
    with pytest.raises(GdbextError, match="must end in"):
        files.save(tensor("uint8"), str(tmp_path / "a.bin"))


def test_a_failing_read_leaves_no_file(tmp_path):
    t = tensor("int32")
    t.target.memory.clear()
    for kind in files.KINDS:
        with pytest.raises(GdbextError, match="freed"):
            files.save(t, str(tmp_path / ("a" + kind)))
    assert os.listdir(tmp_path) == []


def test_a_big_transposed_tensor_is_written_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "PIECE", 64)
    monkeypatch.setattr(files, "FLUSH", 200)
    for kind in files.KINDS:
        path = str(tmp_path / ("t" + kind))
        t = tensor("float32", (30, 40), True)
        files.save(t, path)
        assert compare(arrays.of_tensor(t), files.read(path))["equal"]


def test_numpy_reads_what_is_written_and_the_other_way_round(tmp_path):
    path = str(tmp_path / "a.npy")
    t = tensor("float64", (4, 3), True)
    files.save(t, path)
    assert (numpy.load(path) == numpy.frombuffer(t.target.memory[0x200000], "f8").reshape(4, 3).T).all()
    own = numpy.asfortranarray(numpy.arange(12, dtype="i2").reshape(3, 4))
    for array in (own, own.T, numpy.zeros((0, 2), "?"), numpy.array(3.5, "f2")):
        numpy.save(path, array)
        source = files.read(path)
        assert source.shape == array.shape and source.dtype.name == array.dtype.name
        assert all((source.numbers(box) == array[box]).all() for box in source.boxes())


def test_names_are_split_from_paths():
    assert files.split_name("/a/b.pt") == ("/a/b.pt", "")
    assert files.split_name("m.safetensors:model.layers.0.w") == ("m.safetensors", "model.layers.0.w")
    assert files.split_name("x.pt.npy:y") == ("x.pt.npy", "y")
    assert files.split_name("self.pt_x") is None and files.split_name("mod:_TP") is None


class Evil:
    def __reduce__(self):
        return os.system, ("touch " + "/tmp/gdbext-evil",)


def test_a_pt_file_that_would_run_code_is_refused(tmp_path):
    path = str(tmp_path / "evil.pt")
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("archive/data.pkl", pickle.dumps(Evil(), 2))
    with pytest.raises(GdbextError, match="posix.system, which is not read"):
        files.read(path)
    assert not os.path.exists("/tmp/gdbext-evil")


@pytest.mark.parametrize("kind", files.KINDS)
def test_damaged_files_end_in_one_line(tmp_path, kind):
    rng, good = random.Random(3), str(tmp_path / ("good" + kind))
    files.save(tensor("float32"), good)
    blob = open(good, "rb").read()
    refused = 0
    for i in range(300):
        bad = bytearray(blob)
        if i % 3 == 0:
            bad = bad[: rng.randrange(len(bad))]
        else:
            for _ in range(rng.randint(1, 6)):
                bad[rng.randrange(min(len(bad), 600))] = rng.randrange(256)
        path = str(tmp_path / ("bad" + kind))
        with open(path, "wb") as f:
            f.write(bad)
        try:
            source = files.read(path)
            for box in source.boxes():
                source.numbers(box)
        except GdbextError as e:
            assert "\n" not in str(e)
            refused += 1
    assert refused > 50


def test_a_hostile_safetensors_header_is_bounded(tmp_path):
    path = str(tmp_path / "a.safetensors")
    for entry in (
        {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [-1], "data_offsets": [0, -4]},
        {"dtype": "Q", "shape": [1], "data_offsets": [0, 4]},
        [1],
        {"shape": "x"},
    ):
        head = json.dumps({"t": entry}).encode()
        with open(path, "wb") as f:
            f.write(struct.pack("<Q", len(head)) + head + bytes(8))
        with pytest.raises(GdbextError):
            files.read(path)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", 1 << 60))
    with pytest.raises(GdbextError, match="damaged"):
        files.read(path)


def pt(path, pickled, **more):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("archive/data.pkl", pickled)
        for name, content in more.items():
            z.writestr("archive/" + name, content)
    return str(path)


def lists_of_one_list(depth=18, width=12):
    """Lists of `width` times the same list, `depth` deep: width ** depth ways to the innermost."""
    value = []
    for _ in range(depth):
        value = [value] * width
    return pickle.dumps(value, 2)


def tuple_as_key(depth=60):
    """A key whose hash takes 2 ** depth steps."""
    steps = b"".join(b"q" + bytes([i]) + b"h" + bytes([i]) + b"\x86" for i in range(depth))
    return b"\x80\x02})" + steps + b"K\x01s."


BOMBS = {
    "lists of the same list": lists_of_one_list(),
    "an index of the memo": b"\x80\x02]r" + struct.pack("<I", (1 << 31) - 1) + b".",
    "a key that hashes for ever": tuple_as_key(),
    "a list of itself": b"\x80\x02]q\x00h\x00a.",
    "a bytearray": b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b".",
    "a long string": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 40) + b"x.",
    "empty lists": b"\x80\x02" + b"]" * (1 << 20) + b".",
}


@pytest.mark.parametrize("what", BOMBS)
def test_a_pickle_that_would_fill_the_memory_ends(tmp_path, what, monkeypatch):
    monkeypatch.setattr(files, "MAX_MEMORY", 4 << 20)
    monkeypatch.setattr(files, "MAX_SECONDS", 1.0)
    path, before = pt(tmp_path / "bomb.pt", BOMBS[what]), time.monotonic()
    tracemalloc.start()
    try:
        with pytest.raises(GdbextError) as e:
            files.read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "\n" not in str(e.value) and peak < 2 * files.MAX_MEMORY and time.monotonic() - before < 60


def test_a_byte_order_that_inflates_is_not_inflated(tmp_path):
    path = pt(tmp_path / "a.pt", pickle.dumps([], 2), byteorder=bytes(64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(GdbextError, match="big-endian"):
            files.read(path)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": ["0", "4"]},
        {"dtype": "F32", "shape": ["1"], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1] * 1000, "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": 1, "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0]},
        "x",
    ],
)
def test_safetensors_entries_of_wrong_types_are_damage(tmp_path, entry):
    path, head = tmp_path / "a.safetensors", json.dumps({"t": entry}).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + bytes(4))
    with pytest.raises(GdbextError, match="damaged|not known here"):
        files.read(str(path))


@pytest.mark.parametrize("head", [b"[" * 100000, b'{"t": ' + b"9" * 1000000 + b"}", b"{" + b'"a":{' * 50000])
def test_safetensors_headers_that_never_end_do(tmp_path, head):
    path = tmp_path / "a.safetensors"
    path.write_bytes(struct.pack("<Q", len(head)) + head)
    with pytest.raises(GdbextError, match="damaged"):
        files.read(str(path))


def test_what_is_no_regular_file_is_not_opened(tmp_path):
    for kind in files.KINDS:
        fifo = str(tmp_path / ("fifo" + kind))
        os.mkfifo(fifo)
        with pytest.raises(GdbextError, match="regular file"):
            files.read(fifo)


def test_several_tensors_are_told_apart_by_name(tmp_path):
    path = str(tmp_path / "two.safetensors")
    head = json.dumps({n: {"dtype": "U8", "shape": [2], "data_offsets": [i * 2, i * 2 + 2]} for i, n in enumerate("ab")}).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + b"\1\2\3\4")
    assert files.read(path, "b").numbers((slice(0, 2),)).tolist() == [3, 4]
    with pytest.raises(GdbextError, match="holds 2 tensors; name one"):
        files.read(path)
    with pytest.raises(GdbextError, match="no tensor c"):
        files.read(path, "c")


def flat(values, dtype):
    base = numpy.array(values)
    return arrays.of_tensor(made(base, base, dtype))


def test_differences_are_counted_and_measured():
    a = flat(numpy.array([1.0, 2.0, numpy.nan, 0.0, numpy.inf, 5.0], "f4"), "float32")
    b = flat(numpy.array([1.0, 2.5, numpy.nan, -0.0, numpy.inf, numpy.nan], "f4"), "float32")
    found = compare(a, b)
    assert (found["different"], found["first_index"], found["max_abs_diff"], found["nan_different"]) == (2, [1], 0.5, 1)
    assert found["max_rel_diff"] == 0.2 and found["values"] == [2.0, 2.5] and found["ulps"] == 0x40200000 - 0x40000000
    assert compare(a, a)["equal"] and compare(a, a)["max_abs_diff"] == 0.0
    found = compare(flat(numpy.array([2**63 - 1, 0]), "int64"), flat(numpy.array([-(2**63), 0]), "int64"))
    assert (found["max_abs_diff"], found["different"]) == (2**64 - 1, 1)
    found = compare(flat(numpy.array([True, False]), "bool"), flat(numpy.array([True, True]), "bool"))
    assert (found["max_abs_diff"], found["first_index"], found["max_rel_diff"]) == (1, [1], 1.0)
    found = compare(flat(numpy.array([1.0, numpy.nan]), "float64"), flat(numpy.array([1.0, 2.0]), "float64"))
    assert found["max_abs_diff"] != found["max_abs_diff"] and not found["equal"]
    found = compare(flat(numpy.array([1.0, 3.0]), "float64"), flat(numpy.array([-1.0, 0.0]), "float64"))
    assert (found["max_abs_diff"], found["max_rel_diff"], found["max_abs_index"]) == (3.0, 2.0, [1])
    assert compare(flat(numpy.array([1e-323]), "float64"), flat(numpy.array([-5e-324]), "float64"))["ulps"] == 3
    found = compare(flat(numpy.array([1 + 1j], "c8"), "complex64"), flat(numpy.array([1 - 1j], "c8"), "complex64"))
    assert found["max_abs_diff"] == 2.0


def test_the_first_difference_is_the_first_in_row_major_order(monkeypatch):
    monkeypatch.setattr(arrays, "PIECE", 32)
    base = numpy.arange(60, dtype=numpy.int32)
    other = base.copy()
    other[[7, 30, 59]] += [5, -9, 1]
    a, b = made(base, base.reshape(10, 6).T), made(other, other.reshape(10, 6).T)
    found = compare(arrays.of_tensor(a), arrays.of_tensor(b))
    where = numpy.argwhere(base.reshape(10, 6).T != other.reshape(10, 6).T).tolist()
    assert (found["different"], found["first_index"], found["max_abs_diff"]) == (3, where[0], 9)
    assert found["max_abs_index"] == [0, 5]


def test_shapes_that_differ_are_said():
    found = compare(flat(numpy.arange(4), "int64"), flat(numpy.arange(5), "int64"))
    assert found["equal"] is False and found["different"] is None and "[4] against [5]" in found["reason"]


def test_a_scalar_has_an_empty_index():
    one, two = numpy.array(1.0), numpy.array(2.0)
    found = compare(
        arrays.of_tensor(made(one.reshape(1), one.reshape(1)[0:1].reshape(()), "float64")),
        arrays.of_tensor(made(two.reshape(1), two.reshape(1)[0:1].reshape(()), "float64")),
    )
    assert (found["first_index"], found["values"]) == ([], [1.0, 2.0])


def test_a_pt_with_a_pickle_that_is_cut(tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as z:
        z.writestr("x/data.pkl", b"\x80\x02(")
    path = tmp_path / "cut.pt"
    path.write_bytes(buffer.getvalue())
    with pytest.raises(GdbextError, match="damaged .EOFError"):
        files.read(str(path))
