"""Tensors read from outside equal what torch says of them inside: metadata and repr, from /proc, in gdb live and in a core."""

import json
import os

import pytest
from harness.tensors import FIELDS, LAZY, ask, measured
from harness.tensors import tensors as running

from gdbext.errors import GdbextError
from gdbext.torch import layout as layouts
from gdbext.torch.tensor_impl import read_tensor, read_tensor_impl


@pytest.fixture(scope="module")
def subject(torch_python, tmp_path_factory):
    with running(torch_python, tmp_path_factory.mktemp("tensors")) as found:
        yield found


def test_the_processs_own_print_options_and_default_dtype_count(torch_python, tmp_path):
    with running(torch_python, tmp_path, "options") as own:
        assert own.options.default_dtype == "bfloat16" and own.options.precision == 2
        assert {n: own.repr(own.read(n)) for n in own.tensors} == {n: t["repr"] for n, t in own.tensors.items()}


def test_metadata_of_every_tensor_is_what_torch_says(subject):
    wrong = {}
    for name, truth in subject.tensors.items():
        found = measured(subject.read(name))
        if found != {f: truth[f] for f in FIELDS}:
            wrong[name] = {f: (found[f], truth[f]) for f in FIELDS if found[f] != truth[f]}
    assert not wrong
    assert len(subject.tensors) > 300


def test_repr_of_every_tensor_is_torchs_own(subject):
    wrong, compared = {}, 0
    for name, truth in subject.tensors.items():
        if truth["repr"] is not None:
            found = subject.repr(subject.read(name))
            compared += 1
            if found != truth["repr"]:
                wrong[name] = (found[:400], truth["repr"][:400])
    assert not wrong
    assert compared > 300


def test_every_dtype_that_torch_prints_was_among_them(subject):
    seen = {t["dtype"].replace("torch.", "") for t in subject.tensors.values() if t["repr"] is not None}
    assert seen >= {
        "bool",
        "uint8",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "complex32",
        "complex64",
        "complex128",
        "float8_e5m2",
        "float8_e4m3fn",
        "qint8",
        "quint8",
        "qint32",
    }


def test_grad_fn_is_named_as_python_names_it(subject):
    named = {n: t["grad_fn"] for n, t in subject.tensors.items() if t["grad_fn"]}
    assert len(named) > 6 and "DoubleBackward" in named.values()
    assert {n: subject.read(n).grad_fn for n in named} == named


def test_slices_print_as_torchs_own_views(subject):
    wrong = {}
    for name, text, truth in subject.slices:
        found = subject.repr(subject.read(name).sliced(text))
        if found != truth:
            wrong[name, text] = (found, truth)
    assert not wrong


# Kinds that torch prints by running code or from memory that is not laid out as a tensor's: what is said instead.
REFUSED = {
    "jagged": r"look at its \._values, \._offsets",
    "mkldnn": "_mkldnn .*not decoded",
    "packed quantized": "packs several elements into a byte",
    "wrapper subclass": r"a Wrapper has its values in its attributes: look at its \.inner",
}
# Kinds that torch itself cannot print.
RAW = {
    "uint4": "tensor([0, 1, 2, 3, 4, 5, 6, 7], dtype=torch.uint4)",
    "int2": "tensor([0, 1, 2, 3, 4, 5, 6, 7], dtype=torch.int2)",
    "bits16": "tensor([ 256,  770, 1284, 1798], dtype=torch.bits16)",
    "quint4x2": "tensor([0, 1, 2, 3, 4, 5, 6, 7], dtype=torch.quint4x2)",
}


def test_other_kinds_print_as_torch_prints_them(subject):
    wrong, same = {}, 0
    for name, truth in subject.beyond.items():
        if name in REFUSED or truth["repr"] is None or name in ("own repr", "named"):
            continue
        found = subject.repr(subject.read(name))
        same += found == truth["repr"]
        if found != truth["repr"]:
            wrong[name] = found, truth["repr"]
    assert not wrong
    assert same > 15


def test_kinds_that_cannot_be_printed_are_said_in_one_line_and_described(subject):
    for name, said in REFUSED.items():
        if name in subject.beyond:
            tensor = subject.read(name)
            with pytest.raises(GdbextError, match=said) as e:
                subject.repr(tensor)
            assert "\n" not in str(e.value)
            assert tensor.dtype.name == subject.beyond[name]["dtype"].replace("torch.", "")
    assert {n: subject.repr(subject.read(n)) for n in RAW if n in subject.beyond} == {
        n: t for n, t in RAW.items() if n in subject.beyond
    }
    own = ask(subject, hex(subject.beyond["own repr"]["address"]) + " -repr")
    assert own.text == "Own([1., 1.])" and "has a __repr__ of its own" in own.partial[-1]


def test_a_bare_impl_is_the_same_tensor(subject):
    for name in ("float32 bits (3, 4)", "permuted 6-D", "conj", "parameter", "meta"):
        truth = subject.tensors[name]
        tensor = read_tensor_impl(subject.rt.target, subject.table, truth["impl"])
        assert (tensor.address, list(tensor.shape), list(tensor.stride)) == (truth["address"], truth["shape"], truth["stride"])


def test_a_cache_of_many_mib_reads_only_what_it_shows(subject):
    tensor = subject.read("huge kv")
    read = []
    original = tensor.target.read_many
    tensor.target.read_many = lambda ranges: read.extend(ranges) or original(ranges)
    try:
        assert subject.repr(tensor) == subject.tensors["huge kv"]["repr"]
    finally:
        del tensor.target.read_many
    assert 0 < sum(size for _, size in read) < 1 << 20
    assert tensor.storage_bytes == 1 << 27


def test_storage_given_back_is_said_and_not_read(subject):
    with pytest.raises(GdbextError, match="holds 0 bytes.*given back"):
        subject.repr(subject.read("resized away"))


def test_what_is_no_tensor_is_refused_by_name(subject):
    with pytest.raises(GdbextError, match="dict at 0x[0-9a-f]+ is no torch tensor"):
        read_tensor(subject.rt, subject.rt.module("torch.version").address)
    impl = subject.tensors["mul"]["impl"]
    for address in (impl + 8, impl + 64, subject.tensors["mul"]["data_ptr"], subject.tensors["mul"]["address"]):
        with pytest.raises(GdbextError):
            read_tensor_impl(subject.rt.target, subject.table, address)
    storage = subject.rt.target.u64(impl + subject.table.offset("TensorImpl", "storage_"))
    with pytest.raises(GdbextError, match="StorageImpl"):
        read_tensor_impl(subject.rt.target, subject.table, storage)


def test_every_other_releases_layout_is_refused_on_this_process(subject):
    """A wrong row must never give a plausible tensor: those that differ in what is read are refused."""
    own = subject.table.row
    parts = ("THPVariable", "TensorImpl", "StorageImpl", "SizesAndStrides", "PyObjectSlot")
    refused = 0
    for minor in layouts.known():
        other = layouts.for_version(minor)
        if all(other.row[p] == own[p] for p in parts) or other.row["TensorImpl"]["numel_"] == own["TensorImpl"]["numel_"]:
            continue
        refused += 1
        for name in ("float32 bits (3, 4)", "big strided", "permuted 6-D", "huge kv", "parameter"):
            truth = subject.tensors[name]
            with pytest.raises(GdbextError):
                read_tensor_impl(subject.rt.target, other, truth["impl"], truth["address"])
    assert refused


def test_one_line_names_type_shape_dtype_device(subject):
    assert subject.read("float32 bits (3, 4)").one_line() == "Tensor[3, 4] float32 cpu"
    assert subject.read("parameter").one_line() == "Parameter[3, 2] float32 cpu"


# ---- the command -----------------------------------------------------------------------------------------------------


def test_the_command_answers_outside_gdb_without_stopping_the_process(subject):
    truth = subject.tensors["transposed"]
    data = json.loads(ask(subject, "tensors['transposed'] -json").json("pytensor"))
    assert data["schema"] == "pytensor/1" and data["partial"] == ["unstopped"]
    same = ("type", "shape", "stride", "dtype", "device", "layout", "storage_offset", "numel", "storage_bytes", "requires_grad")
    assert {f: data[f] for f in same} == {f: truth[f] for f in same}
    assert (int(data["data_ptr"], 16), int(data["address"], 16)) == (truth["data_ptr"], truth["address"])
    assert ask(subject, "-repr tensors['transposed']").text == truth["repr"]
    sliced = ask(subject, "-slice 1,17,:2,0,:4 kv_cache").data
    assert (sliced["shape"], sliced["storage_offset"]) == ((2, 4), ((1 << 12) + 17) * 16 * 8 * 64)


def test_addresses_of_all_three_kinds_are_understood(subject):
    truth = subject.tensors["mul"]
    slot = truth["address"] + subject.table.offset("THPVariable", "cdata")  # an at::Tensor is the pointer that stands there
    for address, how in ((truth["address"], "Python object"), (truth["impl"], "TensorImpl"), (slot, "at::Tensor")):
        answer = ask(subject, hex(address))
        assert how in answer.data["resolved"]
        assert (answer.data["address"], list(answer.data["shape"])) == (truth["address"], truth["shape"])
        assert truth["repr"] in answer.to_text()


@pytest.mark.parametrize(
    "line,said",
    [
        ("tensors", "is a dict, no tensor; take one of its items"),
        ("tensors['nosuch']", "no key"),
        ("nosuch", "nosuch"),
        ("3 + 4", "no tensor"),
        ("0x12345", "neither a Python tensor nor an at::Tensor nor a TensorImpl"),
        ("small -slice 5000", "out of bounds for dimension 0 with size 1024"),
        ("small -slice 0,0", "too many indices"),
        ("small -slice ::-1", "greater than zero"),
        ("small -slice x", "'x'"),
        ("-cxx $rdi", "C\\+\\+ expressions need gdb"),
        ("-py -cxx small", "exclude"),
        ("-repr tensors['resized away']", "given back"),
        ("", "give an expression"),
    ],
)
def test_bad_input_is_one_clear_line(subject, line, said):
    with pytest.raises(GdbextError, match=said) as e:
        ask(subject, line)
    assert "\n" not in str(e.value)


# ---- in gdb ----------------------------------------------------------------------------------------------------------


def compare_in_gdb(gdb, subject, arguments):
    names = list(subject.tensors)[::11] + ["parameter", "python function", "huge kv", "conj", "meta"]
    names = [n for n in names if subject.tensors[n]["repr"] is not None]
    said = gdb([f"pytensor -json -repr tensors[{name!r}]" for name in names] + ["pytensor -repr small"], arguments, before=LAZY)
    for i, name in enumerate(names):
        data, truth = said.json(i), subject.tensors[name]
        assert data["repr"] == truth["repr"], name
        assert [data[f] for f in ("shape", "stride", "dtype", "storage_bytes")] == [
            truth[f] for f in ("shape", "stride", "dtype", "storage_bytes")
        ]
        assert data["partial"] == [] and int(data["data_ptr"], 16) == truth["data_ptr"]
    assert said.outputs[-1].startswith(subject.tensors["big strided"]["repr"])


def test_in_gdb_a_stopped_process_gives_the_same(gdb, subject):
    compare_in_gdb(gdb, subject, ["-p", str(subject.pid)])


def test_a_core_of_the_process_gives_the_same(gdb, subject, tmp_path):
    core = str(tmp_path / "core")
    gdb([f"generate-core-file {core}"], ["-p", str(subject.pid)], before=LAZY, load=False)
    compare_in_gdb(gdb, subject, ["-c", core])
    with open(core, "r+b") as f:
        f.truncate(os.path.getsize(core) // 3)  # and a truncated one ends in a line, not in a traceback
    said = gdb(["pytensor -repr small", "echo alive"], ["-c", core], before=LAZY)
    assert "Traceback" not in said.text and said.outputs[-1].endswith("alive")


def test_nothing_is_called_in_the_process(gdb, subject):
    said = gdb(["set may-call-functions off", "pytensor -repr small"], ["-p", str(subject.pid)], before=LAZY)
    assert said.outputs[-1].startswith(subject.tensors["big strided"]["repr"])


def test_convenience_functions_take_python_expressions_and_addresses(gdb, subject):
    address = subject.tensors["32 x 32 ints"]["address"]
    said = gdb(
        [
            "print $tensor(\"tensors['offset view']\")",
            "print $tensor_item(\"tensors['32 x 32 ints']\", 1, 2)",
            f"print $tensor_item({address}, -1, -1) + 1",
            'print $tensor("nosuch")',
            f"print $tensor_item({address}, 40, 0)",
            "print $tensor_item(\"tensors['complex 0-d']\")",
        ],
        ["-p", str(subject.pid)],
        before=LAZY,
    )
    text = " ".join(subject.tensors["offset view"]["repr"].split())
    assert said.outputs[0] == f'$1 = "{text}"'
    assert said.outputs[1].endswith("= -478") and said.outputs[2].endswith("= 512")
    assert (
        said.outputs[3].startswith("$tensor: there is no name nosuch")
        and "out of bounds" in said.outputs[4]
        and "complex" in said.outputs[5]
    )
    assert not any("\n" in text for text in said.outputs[:5])
