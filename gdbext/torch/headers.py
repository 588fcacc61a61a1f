"""A row of layouts/torch.json made from a torch's own headers, for scripts/make-torch-layouts and for a torch that the table does
not know.

A probe that includes the headers is compiled (g++ -g -femit-class-debug-always, never linked, never run), and gdb -batch reads
offsets, bit-fields and enumerators out of the object's DWARF. Where THPVariable keeps its TensorImpl comes from the text of
torch/csrc/autograd/python_variable.h.

A process names the headers, so it could have anything included: the probe runs only on headers that nobody but root and the
user of this debugger can have written (`distrust`), or below a folder of `TRUSTED`, and only for `SECONDS` seconds.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sysconfig
import tempfile
from typing import TYPE_CHECKING, Any, Callable, Sequence

from .. import log, package
from ..access.files import contents, json_of
from ..errors import GdbextError, LayoutError

if TYPE_CHECKING:
    from ..access.base import Target
    from ..access.model import Module

TRUSTED = (
    "GDBEXT_TRUST_HEADERS"  # of the environment: folders, separated as in PATH, whose headers may be compiled whoever owns them
)
MAX_KEPT = 1 << 20  # bytes of a row that was kept
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


def run(words: Sequence[str]) -> str:
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


def probe(include: str, python: str, source: str, scratch: str, strings: int = 1) -> dict[str, Any]:
    """{type: offsets} of what `source` names. Releases moved from C++17 to C++20 (2.14); both lay these types out alike.

    `strings`: _GLIBCXX_USE_CXX11_ABI; with 0 a std::string is one pointer.
    """
    try:
        return _probe_as(include, python, source, scratch, "c++17", strings)
    except LayoutError as e:
        log.passed_over(e)
        return _probe_as(include, python, source, scratch, "c++20", strings)


def _probe_as(include: str, python: str, source: str, scratch: str, standard: str, strings: int) -> dict[str, Any]:
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
    found: dict[str, Any] = json.loads(said.strip().splitlines()[-1])
    return found


def python_variable(include: str) -> dict[str, Any]:
    """Bytes from a GIL build's PyObject to its TensorImpl*: 16 for the object head, 8 more behind MaybeOwned's flag."""
    with open(os.path.join(include, "torch", "csrc", "autograd", "python_variable.h")) as f:
        text = f.read()
    m = re.search(r"struct\s+THPVariable\s*\{\s*PyObject_HEAD\s*;?\s*(?://[^\n]*\n\s*)*([\w:<> ]+?)\s+cdata\s*;", text)
    kinds = {"c10::MaybeOwned<at::Tensor>": 24, "at::Tensor": 16}
    if not m or m.group(1) not in kinds:
        raise LayoutError(f"{include}: THPVariable is declared in a way not known here: look at python_variable.h")
    return {"cdata": kinds[m.group(1)], "declared": m.group(1)}


def make_row(include: str, minor: str, python: str | None = None) -> dict[str, Any]:
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


def finish(row: dict[str, Any], include: str) -> dict[str, Any]:
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


def row_of(target: Target, version: str) -> dict[str, Any]:
    """The row of a torch that the table does not know, made from the headers beside the process's libtorch.

    It is kept in the user's cache folder, by the build-id of that libtorch. `LayoutError` says what is missing: headers, trust in
    them, Python.h, g++ or gdb.
    """
    found = _beside(target, lambda path: path.endswith("/lib/libtorch_cpu.so"), "include", "c10/core/TensorImpl.h")
    if found is None:
        raise LayoutError("there are no headers beside its libtorch")
    include, library = found
    kept = _kept(library)
    try:
        known: dict[str, Any] = json_of(contents(kept, MAX_KEPT), kept)
        return known
    except (ValueError, GdbextError) as e:
        log.passed_over(e)
    why = _doubt(library)
    if why:
        raise LayoutError(
            f"the headers beside its libtorch are not compiled, because nothing proves that they are its own: {why}"
        )
    why = distrust(include)
    if why:
        raise LayoutError(
            f"its own headers are not compiled, because {why}: where you trust them, start with {TRUSTED}={include} "
            f"in the environment"
        )
    missing = [name for name in ("g++", "gdb") if not shutil.which(name)]
    if missing:
        raise LayoutError(f"making one from its headers needs {' and '.join(missing)}")
    row = make_row(include, ".".join(version.split(".")[:2]), _python_headers(target))
    if kept:
        try:
            os.makedirs(os.path.dirname(kept), exist_ok=True)
            with open(kept + ".new", "w") as f:
                json.dump(row, f)
            os.replace(kept + ".new", kept)
        except OSError:
            pass  # the next one makes it again
    return row


def _doubt(library: Module) -> str:
    """Why the file beside which headers lie may be another than the one that is mapped; '' where it is that one."""
    try:
        found = library.elf
    except GdbextError as e:
        return str(e)
    return library.doubt or (f"{library.path} has been exchanged or deleted since" if found.relocated_by else "")


def _kept(library: Module) -> str:
    """The file that keeps the row for this build of libtorch; '' where the build has no name."""
    try:
        build = library.build_id
    except GdbextError as e:
        log.passed_over(e)
        build = ""
    if not re.fullmatch(r"[0-9a-f]{8,128}", build):
        return ""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(cache, "gdbext", "torch-rows", build + ".json")


def distrust(folder: str) -> str:
    """Why what is below `folder` may come from somebody else than root and us, in one clause; '' where it cannot.

    Each folder up to / and everything below must be root's or ours and writable by nobody else; a sticky folder such as /tmp is
    as good as one that is not writable. A process's own root (/proc/PID/root) is its own to arrange.
    """
    real = _without_links(folder)
    allowed = [_without_links(part) for part in os.environ.get(TRUSTED, "").split(os.pathsep) if part]
    if any(real == part or real.startswith(part.rstrip("/") + "/") for part in allowed):
        return ""
    if real.startswith("/proc/"):
        return f"{folder} is in a root of the process's own"
    why = package.owned_by_us(real)
    for at, folders, files in os.walk(real, onerror=None) if not why else ():
        for path in [os.path.join(at, name) for name in folders + files]:
            why = f"{path} is a symbolic link" if os.path.islink(path) else package.written_by_others(path)
            if why:
                return why
    return why


def _without_links(folder: str) -> str:
    """The folder's own name. A process's root stays a part of it: /proc/PID/root reads as a link to "/", whatever lies there."""
    return os.path.normpath(folder) if folder.startswith("/proc/") else os.path.realpath(folder)


def _beside(target: Target, is_it: Callable[[str], bool], wanted: str, file: str) -> tuple[str, Module] | None:
    """(the folder `wanted` beside the folder of a module for which `is_it(path)`, the module), when `file` is in it; by the name
    under which it is judged, so that nothing else is compiled."""
    for module in target.modules():
        if is_it(module.path):
            folder = _without_links(target.local_file(os.path.join(os.path.dirname(os.path.dirname(module.path)), wanted)))
            if os.path.exists(os.path.join(folder, file)):
                return folder, module
    return None


def _python_headers(target: Target) -> str:
    """A folder with Python.h: of the process's own Python where that can be trusted, else of this one.

    Which one matters little: torch's layouts hold no more of Python than pointers.
    """
    for module in target.modules():
        name = re.search(r"(?:lib)?python(3\.\d+)[^/]*$", module.path)
        if name:
            own = module.path
            found = _beside(target, own.__eq__, "include/python" + name.group(1), "Python.h")
            if found and not distrust(found[0]):
                return found[0]
    folder = sysconfig.get_paths()["include"]
    if not os.path.exists(os.path.join(folder, "Python.h")):
        raise LayoutError("making one from its headers needs Python.h (Debian, Ubuntu: apt-get install python3-dev)")
    return folder
