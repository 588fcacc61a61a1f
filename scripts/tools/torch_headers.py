"""A row of layouts/torch.json made from a torch's own headers, for scripts/make-torch-layouts.

A probe that includes the headers is compiled (g++ -g -femit-class-debug-always, never linked, never run), and gdb -batch reads
offsets, bit-fields and enumerators out of the object's DWARF. Where THPVariable keeps its TensorImpl comes from the text of
torch/csrc/autograd/python_variable.h.
"""

import json
import os
import re
import signal
import subprocess
import sysconfig
import tempfile

from gdbext.errors import LayoutError

SECONDS = 300  # for each run of the compiler and of gdb; they take some ten on a machine at rest
LAST_OLD_STRINGS = (2, 6)  # the last minor with wheels built with _GLIBCXX_USE_CXX11_ABI=0 (x86-64)

# Members are pointers or values of what is wanted: gdb finds the types through them whatever namespace a release moved them to.
CORE = """
#include <c10/core/TensorImpl.h>
#include <c10/core/StorageImpl.h>
struct gdbext_probe {
  c10::TensorImpl *TensorImpl; c10::StorageImpl *StorageImpl; c10::impl::SizesAndStrides *SizesAndStrides;
  c10::impl::PyObjectSlot *PyObjectSlot; c10::DataPtr *DataPtr; c10::detail::UniqueVoidPtr *UniqueVoidPtr;
  c10::ExtraMeta *ExtraMeta; c10::SymbolicShapeMeta *SymbolicShapeMeta;
  c10::ScalarType ScalarType; c10::DeviceType DeviceType; c10::Layout Layout; c10::DispatchKey DispatchKey;
  c10::BackendComponent BackendComponent;
};
gdbext_probe probe;
"""
MORE = """
#include <Python.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/autograd/python_function.h>
#include <ATen/quantized/QTensorImpl.h>
#include <ATen/quantized/Quantizer.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/NestedTensorImpl.h>
struct gdbext_probe {
  torch::autograd::AutogradMeta *AutogradMeta; torch::autograd::DifferentiableViewMeta *DifferentiableViewMeta;
  torch::autograd::ViewInfo *ViewInfo; torch::autograd::PyNode *PyNode; at::QTensorImpl *QTensorImpl;
  at::PerTensorAffineQuantizer *PerTensorAffineQuantizer; at::PerChannelAffineQuantizer *PerChannelAffineQuantizer;
  at::SparseTensorImpl *SparseTensorImpl; at::SparseCsrTensorImpl *SparseCsrTensorImpl;
  at::native::NestedTensorImpl *NestedTensorImpl;
};
gdbext_probe probe;
"""
# What a reader can do nothing without; a release that lost one of them needs a look at its headers, not a silent row.
NEEDED = {
    "TensorImpl": (
        "storage_",
        "autograd_meta_",
        "extra_meta_",
        "pyobj_slot_",
        "sizes_and_strides_",
        "storage_offset_",
        "numel_",
        "data_type_",
        "device_opt_",
        "key_set_",
        "sizes_strides_policy_",
        "storage_access_should_throw_",
    ),
    "StorageImpl": ("data_ptr_", "size_bytes_"),
    "SizesAndStrides": ("size_", "outOfLineStorage_", "inlineStorage_"),
    "PyObjectSlot": ("pyobj_",),
    "AutogradMeta": ("requires_grad_", "grad_fn_"),
}

# Runs inside gdb -batch on the object file; prints one line of JSON.
READER = r"""
import gdb, json
STRUCTS = (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION)

def leaves(t, base, found):
    for f in t.fields():
        if not hasattr(f, "bitpos"):
            continue  # static
        kind = f.type.strip_typedefs()
        if kind.code in STRUCTS and kind.fields():
            leaves(kind, base + f.bitpos // 8, found)
        elif not f.is_base_class:
            found.setdefault(f.name, base + f.bitpos // 8)

def members(t, base, found):
    for f in t.fields():
        if not hasattr(f, "bitpos"):
            continue
        kind = f.type.strip_typedefs()
        at = base + f.bitpos // 8
        if f.is_base_class or not f.name:  # bases and anonymous unions: their members are ours
            if kind.code in STRUCTS:
                members(kind, at, found)
        elif f.name.startswith("_vptr"):
            continue
        elif f.bitsize:
            found[f.name] = [at, f.bitpos % 8, f.bitsize]
        elif f.name == "device_opt_":  # an optional: std's and c10's differ in what comes first
            deep = {}
            leaves(kind, at, deep)
            found[f.name] = {"type": deep["type_"], "index": deep["index_"], "engaged": deep.get("_M_engaged", deep.get("init_"))}
        else:
            found[f.name] = at

def order(item):
    at = item[1]
    return at[0] * 8 + at[1] if isinstance(at, list) else 8 * (min(at.values()) if isinstance(at, dict) else at)

row = {}
for f in gdb.lookup_type("gdbext_probe").fields():
    t = f.type.strip_typedefs()
    if t.code == gdb.TYPE_CODE_PTR:
        t = t.target().strip_typedefs()
    if t.code == gdb.TYPE_CODE_ENUM:
        row[f.name] = {e.name.rpartition("::")[2]: e.enumval for e in t.fields()}
    else:
        found = {}
        members(t, 0, found)
        row[f.name] = {"sizeof": t.sizeof, **dict(sorted(found.items(), key=order))}
print(json.dumps(row))
"""


def run(words):
    """What a program prints; `LayoutError` with its first error, or where it takes more than `SECONDS`."""
    with subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        errors="replace",
        start_new_session=True,  # g++ starts the compiler proper: both end together
    ) as process:
        try:
            out, err = process.communicate(timeout=SECONDS)
        except BaseException as e:
            os.killpg(process.pid, signal.SIGKILL)
            if isinstance(e, subprocess.TimeoutExpired):
                raise LayoutError(f"{words[0]} did not end in {SECONDS} s on the probe of torch's headers") from None
            raise
    if process.returncode:
        tail = (err or out).strip().splitlines()[-12:]
        first = next((line for line in tail if "error" in line), tail[-1] if tail else "no output")
        raise LayoutError(f"{words[0]} failed on the probe of torch's headers: {first.strip()}")
    return out


def probe(include, python, source, scratch, strings=1):
    """{type: offsets} of what `source` names. Releases moved from C++17 to C++20 (2.14); both lay these types out alike.

    `strings`: _GLIBCXX_USE_CXX11_ABI; with 0 a std::string is one pointer.
    """
    try:
        return _probe_as(include, python, source, scratch, "c++17", strings)
    except LayoutError:
        return _probe_as(include, python, source, scratch, "c++20", strings)


def _probe_as(include, python, source, scratch, standard, strings):
    cpp, obj = os.path.join(scratch, "probe.cpp"), os.path.join(scratch, "probe.o")
    with open(cpp, "w") as f:
        f.write(source)
    run(
        [
            "g++",
            "-std=" + standard,
            "-w",
            "-g",
            "-femit-class-debug-always",
            "-DAT_PER_OPERATOR_HEADERS",  # without all operators at once, which the types do not need: a third less time
            f"-D_GLIBCXX_USE_CXX11_ABI={strings}",
            "-c",
            cpp,
            "-o",
            obj,
            "-I" + include,
            "-I" + os.path.join(include, "torch", "csrc", "api", "include"),
            "-I" + python,
        ]
    )
    script = os.path.join(scratch, "read.py")
    with open(script, "w") as f:
        f.write(READER)
    said = run(["gdb", "-nx", "-batch", "-iex", "set auto-load off", obj, "-x", script])
    return json.loads(said.strip().splitlines()[-1])


def python_variable(include):
    """Bytes from a GIL build's PyObject to its TensorImpl*: 16 for the object head, 8 more behind MaybeOwned's flag."""
    with open(os.path.join(include, "torch", "csrc", "autograd", "python_variable.h")) as f:
        text = f.read()
    m = re.search(r"struct\s+THPVariable\s*\{\s*PyObject_HEAD\s*;?\s*(?://[^\n]*\n\s*)*([\w:<> ]+?)\s+cdata\s*;", text)
    kinds = {"c10::MaybeOwned<at::Tensor>": 24, "at::Tensor": 16}
    if not m or m.group(1) not in kinds:
        raise LayoutError(f"{include}: THPVariable is declared in a way not known here: look at python_variable.h")
    return {"cdata": kinds[m.group(1)], "declared": m.group(1)}


def make_row(include, minor, python=None):
    """The row of a torch minor ("2.13"). `include`: its folder torch/include; `python`: a folder with Python.h, this Python's
    own by default."""
    python = python or sysconfig.get_paths()["include"]
    with tempfile.TemporaryDirectory() as scratch:
        row = finish({**probe(include, python, CORE, scratch), **probe(include, python, MORE, scratch)}, include)
        row = {"THPVariable": python_variable(include), **row}
        if tuple(map(int, minor.split("."))) <= LAST_OLD_STRINGS:
            old = finish({**probe(include, python, CORE, scratch, 0), **probe(include, python, MORE, scratch, 0)}, include)
            row["pre_cxx11_abi"] = {k: v for k, v in old.items() if v != row[k]}
    return row


def finish(row, include):
    """The probe's answer without what is not needed; `LayoutError` where something that is needed is not there."""
    for name in [n for n in row if n.endswith("Impl") and n not in ("TensorImpl", "StorageImpl")]:  # only what is their own
        row[name] = {k: v for k, v in row[name].items() if row["TensorImpl"].get(k) != v}
    for name, fields in NEEDED.items():
        missing = [f for f in fields if f not in row[name]]
        if missing:
            raise LayoutError(f"{include}: {name} has no {', '.join(missing)}: look at the headers")
    keys = row.pop("DispatchKey")
    row["DispatchKey"] = {k: v for k, v in keys.items() if v < keys["EndOfFunctionalityKeys"]}  # the rest are runtime sums
    row["backends"] = keys.pop("EndOfBackendKeys", row["BackendComponent"]["EndOfBackendKeys"])
    return row
