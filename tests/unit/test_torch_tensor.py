"""Tensors made of bytes, for every torch release with a layout: read right when right, refused when not."""

import random
import struct

import pytest

from gdbext.access.fake import FakeTarget
from gdbext.access.model import Mapping
from gdbext.errors import FaultError, GdbextError, LayoutError
from gdbext.torch import arrays, stats
from gdbext.torch import layout as layouts
from gdbext.torch.repr import Options, tensor_repr
from gdbext.torch.rtti import demangle
from gdbext.torch.tensor_impl import read_tensor_impl

LIBRARY, IMPL, STORAGE, DATA, PYOBJ, OUTER, META = 0x10000, 0x100000, 0x110000, 0x200000, 0x300000, 0x120000, 0x130000
CLASSES = [
    "__cxxabiv1::__class_type_info",
    "__cxxabiv1::__si_class_type_info",
    "c10::TensorImpl",
    "c10::StorageImpl",
    "at::Other",
    "at::QTensorImpl",
    "torch::autograd::AutogradMeta",
    "torch::autograd::Node",
    "torch::autograd::generated::MulBackward0",
]
BASES = {"at::QTensorImpl": "c10::TensorImpl", "torch::autograd::generated::MulBackward0": "torch::autograd::Node"}
STEP = 256  # bytes per class in the made-up library: vtable at +0 (address point +16), type_info at +64, name at +128


def mangled(name):
    parts = name.split("::")
    return "N" + "".join(f"{len(p)}{p}" for p in parts) + "E"


def vptr(name):
    return LIBRARY + CLASSES.index(name) * STEP + 16


def library():
    blob = bytearray(len(CLASSES) * STEP)
    for i, name in enumerate(CLASSES):
        at = i * STEP
        kind = CLASSES[1] if name in BASES else CLASSES[0]
        struct.pack_into("<qQ", blob, at, 0, LIBRARY + at + 64)
        base = LIBRARY + CLASSES.index(BASES[name]) * STEP + 64 if name in BASES else 0
        struct.pack_into("<QQQ", blob, at + 64, vptr(kind), LIBRARY + at + 128, base)
        text = mangled(name).encode() + b"\0"
        blob[at + 128 : at + 128 + len(text)] = text
    return bytes(blob)


SIX = struct.pack("<6f", *range(6))


WRITABLE = (Mapping(DATA, DATA + 0x1000, "rw-p"),)


class Made:
    """A FakeTarget with one tensor; `impl` and `storage` are the bytes to damage before `read()`."""

    def __init__(self, minor, shape=(2, 3), stride=(3, 1), dtype="Float", data=SIX, offset=0):
        self.table = t = layouts.for_version(minor)
        self.impl, self.storage = bytearray(t.size("TensorImpl")), bytearray(t.size("StorageImpl"))
        self.memory = {LIBRARY: library(), DATA: bytes(data)}
        self.impl[0:8] = struct.pack("<Q", vptr("c10::TensorImpl"))
        self.storage[0:8] = struct.pack("<Q", vptr("c10::StorageImpl"))
        counts = "combined_refcount_" if t.has("TensorImpl", "combined_refcount_") else "refcount_"
        self.put(counts, "<I", 1)
        self.put("storage_", "<Q", STORAGE)
        self.put("pyobj_slot_", "<Q", PYOBJ, "PyObjectSlot", "pyobj_")
        self.put("sizes_and_strides_", "<Q", len(shape), "SizesAndStrides", "size_")
        if len(shape) <= 5:
            for i, (n, s) in enumerate(zip(shape, stride)):
                self.size(i, n)
                self.size(5 + i, s)
        else:
            self.put("sizes_and_strides_", "<Q", OUTER, "SizesAndStrides", "outOfLineStorage_")
            self.memory[OUTER] = struct.pack(f"<{2 * len(shape)}q", *shape, *stride)
        numel = 1
        for n in shape:
            numel *= n
        self.put("numel_", "<q", numel)
        self.put("storage_offset_", "<q", offset)
        self.put("data_type_", "<H", t.row["ScalarType"][dtype])
        self.device("CPU", -1)
        self.store("data_ptr_", "<Q", DATA)
        self.store("size_bytes_", "<q", len(data))

    def put(self, field, code, value, *rest):
        struct.pack_into(code, self.impl, self.table.offset("TensorImpl", field, *rest), value)

    def store(self, field, code, value):
        struct.pack_into(code, self.storage, self.table.offset("StorageImpl", field), value)

    def size(self, i, value):
        at = self.table.offset("TensorImpl", "sizes_and_strides_", "SizesAndStrides", "inlineStorage_")
        struct.pack_into("<q", self.impl, at + 8 * i, value)

    def device(self, kind, index, engaged=1):
        at = self.table.row["TensorImpl"]["device_opt_"]
        struct.pack_into("<b", self.impl, at["type"], self.table.row["DeviceType"].get(kind, 99))
        struct.pack_into("<b", self.impl, at["index"], index)
        self.impl[at["engaged"]] = engaged

    def key(self, name):
        self.put("key_set_", "<Q", self.table.key_bit(name))

    def read(self, python_object=PYOBJ, mapped=WRITABLE):
        memory = {IMPL: bytes(self.impl), STORAGE: bytes(self.storage), **self.memory}
        path = "/venv/torch/lib/libtorch_cpu.so"
        maps = [Mapping(LIBRARY, LIBRARY + 0x10000, "r--p", 0, path), *mapped]
        return read_tensor_impl(FakeTarget(memory, maps), self.table, IMPL, python_object)


@pytest.fixture(params=layouts.known())
def minor(request):
    return request.param


def test_there_is_a_layout_for_every_minor_from_2_1_on_without_gaps():
    known = [tuple(map(int, m.split("."))) for m in layouts.known()]
    assert known == [(2, n) for n in range(1, 1 + len(known))] and len(known) >= 13


def test_a_tensor_of_every_release_is_read(minor):
    t = Made(minor, stride=(1, 2), offset=0).read()
    assert (t.shape, t.stride, t.dtype.name, t.device, t.layout, t.numel) == ((2, 3), (1, 2), "float32", "cpu", "strided", 6)
    assert (t.data_ptr, t.storage_bytes, t.address, t.kind) == (DATA, 24, PYOBJ, "c10::TensorImpl")
    assert tensor_repr(t) == "tensor([[0., 2., 4.],\n        [1., 3., 5.]])"


def test_more_than_five_dimensions_lie_out_of_line(minor):
    made = Made(minor, (1, 1, 1, 1, 2, 3), (6, 6, 6, 6, 3, 1))
    assert made.read().values([(0, 0, 0, 0, 1, 2)]) == [5.0]
    made.memory.pop(OUTER)
    with pytest.raises(FaultError):
        made.read()


def test_conjugate_and_negative_bits_are_applied(minor):
    made = Made(minor, (2,), (1,), "ComplexFloat", struct.pack("<4f", 1, 2, 3, -4))
    made.key("Conjugate")
    t = made.read()
    assert t.is_conj and t.values([(0,), (1,)]) == [1 - 2j, 3 + 4j]
    made = Made(minor, (2,), (1,), "Float", struct.pack("<2f", 1, -2))
    made.key("Negative")
    assert made.read().is_neg and made.read().values([(0,), (1,)]) == [-1.0, 2.0]


def test_requires_grad_and_grad_fn(minor):
    made = Made(minor)
    made.put("autograd_meta_", "<Q", META)
    blob = bytearray(made.table.size("AutogradMeta"))
    blob[0:8] = struct.pack("<Q", vptr("torch::autograd::AutogradMeta"))
    blob[made.table.offset("AutogradMeta", "requires_grad_")] = 1
    made.memory[META] = bytes(blob)
    assert (made.read().requires_grad, made.read().grad_fn) == (True, "")
    node = META + 0x1000
    struct.pack_into("<Q", blob, made.table.offset("AutogradMeta", "grad_fn_"), node)
    made.memory.update({META: bytes(blob), node: struct.pack("<Q", vptr("torch::autograd::generated::MulBackward0"))})
    assert (made.read().requires_grad, made.read().grad_fn) == (True, "MulBackward0")
    made.memory[node] = struct.pack("<Q", vptr("at::Other"))  # no Node: the layout is not this one, and that is said
    t = made.read()
    assert t.requires_grad is None and "AutogradMeta" in t.notes[0]


Made.put_vptr = lambda self, value: self.impl.__setitem__(slice(0, 8), struct.pack("<Q", value))
DAMAGES = {  # what is wrong: how to make it wrong
    "wild ndim": lambda m: m.put("sizes_and_strides_", "<Q", 1 << 40, "SizesAndStrides", "size_"),
    "many dims": lambda m: m.put("sizes_and_strides_", "<Q", 257, "SizesAndStrides", "size_"),
    "wrong numel": lambda m: m.put("numel_", "<q", 7),
    "negative size": lambda m: m.size(0, -2),
    "huge size": lambda m: m.size(0, 1 << 62),
    "huge stride": lambda m: m.size(5, -(1 << 63)),
    "null vtable": lambda m: m.impl.__setitem__(slice(0, 8), bytes(8)),
    "garbage vtable": lambda m: m.put_vptr(0x4141414141414141),
    "vtable beside one": lambda m: m.put_vptr(vptr("c10::TensorImpl") + 8),
    "another class": lambda m: m.put_vptr(vptr("at::Other")),
    "a storage": lambda m: m.put_vptr(vptr("c10::StorageImpl")),
    "freed": lambda m: m.put("combined_refcount_" if m.table.has("TensorImpl", "combined_refcount_") else "refcount_", "<Q", 0),
    "dtype": lambda m: m.put("data_type_", "<H", 250),
    "device": lambda m: m.device("no such", 0),
    "device index": lambda m: m.device("CPU", -7),
    "device flag": lambda m: m.device("CPU", -1, 77),
    "negative offset": lambda m: m.put("storage_offset_", "<q", -1),
    "storage of another class": lambda m: m.storage.__setitem__(slice(0, 8), struct.pack("<Q", vptr("at::Other"))),
    "storage nowhere": lambda m: m.put("storage_", "<Q", 0xDEAD0000),
}


def test_damage_is_refused_in_one_line(minor):
    for what, damage in DAMAGES.items():
        made = Made(minor)
        made.read()
        damage(made)
        with pytest.raises(LayoutError) as e:
            made.read()
        assert "\n" not in str(e.value), what


def test_another_objects_impl_is_refused(minor):
    with pytest.raises(LayoutError, match="pyobj_ is 0x300000, not 0x300010"):
        Made(minor).read(PYOBJ + 16)


def test_a_null_storage_is_no_crash_and_no_zeros(minor):
    made = Made(minor)
    made.put("storage_", "<Q", 0)
    t = made.read()
    assert (t.data_ptr, t.storage, t.storage_bytes) == (0, 0, None)
    with pytest.raises(GdbextError, match="holds 0 bytes at 0x0, 24 are needed"):
        tensor_repr(t)


def test_views_that_reach_outside_their_storage_are_not_read():
    for shape, stride, offset in (((2, 3), (3, 1), 1), ((2, 3), (1 << 40, 1), 0), ((2, 3), (-3, 1), 0)):
        with pytest.raises(GdbextError, match="outside its storage"):
            tensor_repr(Made("2.13", shape, stride, offset=offset).read())


@pytest.mark.parametrize("shape,stride,offset", [((2, 3), (-3, 1), 0), ((2, 3), (3, -1), 1), ((3,), (1 << 40,), 0)])
def test_a_reach_outside_the_storage_is_said_before_anything_is_read(shape, stride, offset):
    """-json asks `unavailable`: it says what the values say. The memory was not given back: the storage holds its bytes."""
    t = Made("2.13", shape, stride, offset=offset).read()
    assert "outside its storage" in t.unavailable and "given back" not in t.unavailable
    gone = Made("2.13")
    gone.store("size_bytes_", "<q", 0)
    assert "given back" in gone.read().unavailable


def test_every_dtype_code_is_a_value_or_one_line(minor):
    pytest.importorskip("numpy")
    refused = 0
    for code in [*range(64), 255, 65535]:
        made = Made(minor)
        made.put("data_type_", "<H", code)
        try:
            t = made.read()
            tensor_repr(t)
            stats.statistics(arrays.of_tensor(t))
        except GdbextError as e:
            assert "\n" not in str(e) and str(e)
            refused += 1
    assert refused > 20


def test_memory_that_is_gone_is_said():
    made = Made("2.13")
    made.memory.pop(DATA)
    with pytest.raises(FaultError, match="0x200000.*freed"):
        tensor_repr(made.read())


def test_device_tensors_show_metadata_and_the_way_to_the_values():
    made = Made("2.13")
    made.device("CUDA", 3)
    t = made.read(mapped=())
    assert (t.device, t.shape, t.data_ptr) == ("cuda:3", (2, 3), DATA)
    with pytest.raises(GdbextError, match="memory of cuda:3.*cuda-gdb"):
        tensor_repr(t)
    made.device("XPU", 0)
    with pytest.raises(GdbextError, match="memory of xpu:0"):
        tensor_repr(made.read())


@pytest.mark.parametrize(
    "mapped",
    [
        [("rw-p", "", 0x1000)],
        [("rw-s", "/dev/zero (deleted)", 0x1000)],
        [("rw-s", "/dev/nvidiactl", 8), ("rw-s", "/dev/nvidiactl", 0x1000)],
    ],
)
def test_a_device_tensor_in_pinned_host_memory_is_read(minor, mapped):
    made = Made(minor)
    made.device("CUDA", 0)
    t = made.read(mapped=pieces(mapped))
    assert t.in_host_memory and not t.unavailable and t.values([(1, 2)]) == [5.0]
    assert tensor_repr(t).startswith("tensor([[0., 1., 2.],\n        [3., 4., 5.]], device='cuda:0'")


@pytest.mark.parametrize(
    "mapped",
    [
        [],
        [("---p", "", 0x1000)],  # what CUDA reserves for the device's addresses
        [("rw-s", "/dev/nvidia-uvm", 0x1000)],  # managed memory: a read would fetch it from the device
        [("rw-s", "/dev/nvidia0", 0x1000)],
        [("rw-p", "", 16)],  # not all of it
        [("rw-p", "", 16), ("---p", "", 0x1000)],
    ],
)
def test_a_device_tensor_elsewhere_is_not(mapped):
    made = Made("2.13")
    made.device("CUDA", 0)
    t = made.read(mapped=pieces(mapped))
    assert not t.in_host_memory
    with pytest.raises(GdbextError, match="memory of cuda:0.*cuda-gdb"):
        t.values([(0, 0)])


def pieces(mapped):
    """Mappings one after the other from DATA on: (permissions, file, bytes)."""
    found, at = [], DATA
    for perms, path, size in mapped:
        found.append(Mapping(at, at + size, perms, 0, path))
        at += size
    return found


def test_a_tensor_that_would_print_without_end_is_refused():
    shape = (6,) * 10
    made = Made("2.13", shape, (0,) * 10)
    with pytest.raises(GdbextError, match="-slice"):
        tensor_repr(made.read())


def test_endless_print_options_of_the_process_end():
    t = Made("2.13", (1 << 40,), (0,)).read()
    with pytest.raises(GdbextError, match="-slice"):
        tensor_repr(t, Options(threshold=float("inf")))


@pytest.mark.parametrize("seed", range(40))
def test_random_damage_ends_in_a_value_or_in_one_line(seed):
    rng = random.Random(seed)
    for _ in range(50):
        made = Made(rng.choice(layouts.known()), rng.choice([(2, 3), (6,)]), (1, 1))
        for _ in range(rng.randint(1, 4)):
            blob = rng.choice([made.impl, made.impl, made.storage])
            at = rng.randrange(0, len(blob), 8)
            word = rng.choice(
                [rng.getrandbits(64), rng.randrange(300), IMPL, STORAGE, DATA, (1 << 64) - 1, 1 << 63, LIBRARY + 16]
            )
            blob[at : at + 8] = struct.pack("<Q", word)
        try:
            assert tensor_repr(made.read(rng.choice([None, PYOBJ])))
        except GdbextError as e:
            assert "\n" not in str(e) and len(str(e)) < 1000


def test_only_what_is_shown_is_read():
    made = Made("2.13", (1 << 30,), (0,))
    t = made.read()
    assert tensor_repr(t) == "tensor([0., 0., 0.,  ..., 0., 0., 0.])"


def test_slices_follow_torch():
    t = Made("2.13", (4, 6), (6, 1), data=struct.pack("<24f", *range(24))).read()
    for text, shape, first in (
        ("1", (6,), 6.0),
        ("-1,::2", (3,), 18.0),
        ("..., 2", (4,), 2.0),
        ("[1:3, 4:]", (2, 2), 10.0),
        ("2,", (6,), 12.0),
    ):
        part = t.sliced(text)
        assert part.shape == shape and part.values([(0,) * len(shape)]) == [first], text
    assert t.sliced("2:2").numel == 0 and tensor_repr(t.sliced("2:2")) == "tensor([], size=(0, 6))"
    assert t.sliced("1,2").values([()]) == [8.0]
    for text in ("4", "-5", "0,0,0", "::0", "a", "1:2:3:4", "...,...", ","):
        with pytest.raises(GdbextError, match="-slice"):
            t.sliced(text)


def test_print_options_are_honoured():
    t = Made("2.13").read()
    assert (
        tensor_repr(t, Options(precision=1, sci_mode=True))
        == "tensor([[0.0e+00, 1.0e+00, 2.0e+00],\n        [3.0e+00, 4.0e+00, 5.0e+00]])"
    )
    assert tensor_repr(t, Options(threshold=5, edgeitems=1)) == "tensor([[0.,  ..., 2.],\n        [3.,  ..., 5.]])"
    assert tensor_repr(t, Options(default_dtype="bfloat16")).endswith("dtype=torch.float32)")


def test_unknown_releases_are_refused_with_what_to_run():
    for version in ("1.13.1", "2.0.1", "3.1.0", "", "nonsense"):
        with pytest.raises(LayoutError, match="make-torch-layouts"):
            layouts.for_version(version)


def test_old_strings_move_autograd_fields_and_nothing_that_shapes_need():
    changed = 0
    for minor in layouts.known():
        new, old = layouts.for_version(minor), layouts.for_version(minor, pre_cxx11_abi=True)
        assert new.row["TensorImpl"] == old.row["TensorImpl"] and new.row["StorageImpl"] == old.row["StorageImpl"]
        changed += new.row["AutogradMeta"] != old.row["AutogradMeta"]
    assert changed >= 5  # the minors whose x86-64 wheels were built so


@pytest.mark.parametrize(
    "name,shown",
    [
        ("N3c1010TensorImplE", "c10::TensorImpl"),
        ("3Foo", "Foo"),
        ("St9exception", "std::exception"),
        ("N2at16OpaqueTensorImplIN3c1013intrusive_ptrIiEEEE", "at::OpaqueTensorImpl<…>"),
        ("N5torch8autograd6PyNodeE", "torch::autograd::PyNode"),
        ("N12_GLOBAL__N_13FooE", "(anonymous namespace)::Foo"),
        ("", None),
        ("i", None),
        ("N99shortE", None),
        ("N0E", None),
        ("\x1b[31m", None),
    ],
)
def test_class_names_are_demangled(name, shown):
    assert demangle(name) == shown


def test_a_type_that_is_its_own_base_ends():
    blob = bytearray(library())
    at = CLASSES.index("at::QTensorImpl") * STEP
    struct.pack_into("<Q", blob, at + 64 + 16, LIBRARY + at + 64)
    made = Made("2.13")
    made.memory[LIBRARY] = bytes(blob)
    made.put_vptr(vptr("at::QTensorImpl"))
    with pytest.raises(LayoutError, match="QTensorImpl"):
        made.read()


@pytest.mark.parametrize("minor", layouts.known())
def test_on_aarch64_only_what_follows_the_mutex_of_a_node_moves(minor):
    here, there = layouts.for_version(minor).row, layouts.for_version(minor, arch="aarch64").row
    assert {k for k in here if here[k] != there[k]} == {"PyNode"}
    moved = {f: there["PyNode"][f] - at for f, at in here["PyNode"].items()}
    assert moved["mutex_"] == moved["sequence_nr_"] == 0 and moved["next_edges_"] == moved["sizeof"] == 8
