"""Tensors in files: .npy, .safetensors and torch.save's .pt, written and read without torch. Needs numpy, except to write small
tensors.

Formats: numpy's NEP 1; the safetensors specification (an 8-byte length, a JSON header, the data); torch.save's zip (data.pkl and
one file per storage; torch/serialization.py, torch/_utils.py). A .pt is written with the few pickle instructions that plain
torch.load(weights_only=True) accepts. It is read by an unpickler that knows a handful of names and makes nothing else.

Files are written and read piece by piece, so that a tensor of any size passes through bounded memory; the safetensors library
would want the whole tensor as one bytes object. A file is not mapped for reading: its owner may truncate it meanwhile. A file's
claims are checked before memory is spent on them.
"""

from __future__ import annotations

import ast
import functools
import json
import math
import os
import pickle
import re
import struct
import zipfile
import zlib
from typing import IO, Any, BinaryIO, Callable, Dict, Sequence

from ..access.files import Budget, FileBytes, json_of, open_regular, reading
from ..errors import GdbextError
from ..render.files import may_write, writing
from . import arrays, dtypes, small
from .dtypes import DType
from .tensor import Tensor
from .tensor_impl import MAX_DIMS

KINDS = (".npy", ".safetensors", ".pt")
MAX_HEADER = 16 << 20  # bytes of a safetensors header, a data.pkl or a zip's directory: those of 100,000 tensors
MAX_NPY_HEADER = 1 << 14  # bytes; numpy itself takes 10,000
MAX_MEMORY = 128 << 20  # bytes that the parts of one file may become besides its tensors
MAX_SECONDS = 10.0  # for the same
MAX_DEPTH = 20  # containers in containers that are looked into
_OPCODE = 64  # bytes that one instruction of a pickle is taken to make
FLUSH = 64 << 20  # bytes written through a mapping before its pages are given back
_SAFETENSORS = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "uint32": "U32",
    "int32": "I32",
    "uint64": "U64",
    "int64": "I64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "C64",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e8m0fnu": "F8_E8M0",
}
_STORAGES = {
    "float64": "Double",
    "float32": "Float",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "uint8": "Byte",
    "int8": "Char",
    "int16": "Short",
    "int32": "Int",
    "int64": "Long",
    "bool": "Bool",
    "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
}
_NPY = set(arrays.NUMPY) - {"bfloat16", "complex32", "bcomplex32", "qint8", "quint8", "qint32"}


# ---- writing -----------------------------------------------------------------------------------------------------------
def save(tensor: Tensor, path: str, force: bool = False) -> tuple[int, str]:
    """Writes a tensor whose values can be read to `path`, whose ending chooses the format. -> (bytes, the torch dtype written).

    Conjugate and negative views are written resolved, quantized tensors as their float32 values. The file appears whole or not at
    all; an existing file is replaced only with `force`. `GdbextError` for a dtype that the format lacks.
    """
    may_write(path, "-save", force)
    kind = os.path.splitext(path)[1]
    if kind not in KINDS:
        raise GdbextError(f"-save {path}: the file's name must end in {', '.join(KINDS)}")
    if tensor.layout.startswith("sparse_"):
        raise GdbextError(f"-save {path}: a {tensor.layout} tensor has several parts, which are not saved here")
    source: Any = stored_source(tensor) if small.has_numpy(tensor) else small.Stored(tensor)
    dtype = source.dtype
    write = {".npy": _write_npy, ".safetensors": _write_safetensors, ".pt": _write_pt}[kind]
    known = {".npy": _NPY, ".safetensors": _SAFETENSORS, ".pt": dtypes.DTYPES}[kind]
    if dtype.name not in known:
        others = "as .pt" if kind == ".safetensors" or dtype.name not in _SAFETENSORS else "as .safetensors or .pt"
        raise GdbextError(f"-save {path}: a {kind} file has no torch.{dtype.name}: save it {others}")
    with writing(path, "-save", force) as f:
        write(f, source)
        return f.seek(0, os.SEEK_END), "torch." + dtype.name


def stored_source(tensor: Tensor) -> arrays.Source:
    """The `Source` of a tensor's values as they are written: conjugate and negative views resolved, quantized ones as float32."""
    source = arrays.of_tensor(tensor)
    if arrays.resolved(tensor):
        dtype, read = source.dtype, source.read
    else:
        read = source.numbers
        box = next(iter(source.boxes()), None)
        dtype = dtypes.DTYPES[read(box).dtype.name if box is not None else "float32" if tensor.quantizer else source.dtype.name]
    return arrays.Source(source.shape, dtype, source.name, read, source.order)


def _write_npy(f: IO[bytes], source: arrays.Source) -> None:
    kind = "|" if source.dtype.itemsize == 1 else "<"
    descr = kind + arrays.NUMPY[source.dtype.name].replace("?", "b1")
    header = repr({"descr": descr, "fortran_order": False, "shape": source.shape}).encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
    _write_rows(f, source)


def _write_safetensors(f: IO[bytes], source: arrays.Source) -> None:
    f.write(safetensors_header([("tensor", source.dtype, source.shape)]))
    _write_rows(f, source)


def safetensors_header(entries: Sequence[tuple[str, DType, Sequence[int]]]) -> bytes:
    """The beginning of a .safetensors file of `[(name, dtype, shape)]`, each dtype one that `has_safetensors` knows. The elements
    follow, row-major, one tensor after the other."""
    head, at = {}, 0
    for name, dtype, shape in entries:
        end = at + math.prod(shape) * dtype.itemsize
        head[name] = {"dtype": _SAFETENSORS[dtype.name], "shape": list(shape), "data_offsets": [at, end]}
        at = end
    header = json.dumps(head).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header


def has_safetensors(dtype: DType) -> bool:
    """Whether a .safetensors file can hold this dtype."""
    return dtype.name in _SAFETENSORS


def _write_rows(f: IO[bytes], source: arrays.Source) -> None:
    """All elements in row-major order."""
    if source.is_row_major:
        for box in source.boxes():
            f.write(source.read(box).tobytes())
        return
    import numpy

    start = f.tell()
    f.truncate(start + source.numel * source.dtype.itemsize)
    f.flush()
    whole, fresh = numpy.memmap(f, arrays.stored_dtype(source.dtype), "r+", start, source.shape), 0
    for box in source.boxes():
        part = source.read(box)
        whole[box] = part
        fresh += part.nbytes
        if fresh > FLUSH:
            whole.flush()
            mapped = getattr(whole, "_mmap", None)
            if mapped is not None and hasattr(mapped, "madvise"):
                import mmap

                mapped.madvise(mmap.MADV_DONTNEED)  # written bytes need not stay in this process
            fresh = 0
    whole.flush()


def _write_pt(f: IO[bytes], source: arrays.Source) -> None:
    dims = arrays.memory_order(source.shape, source.order)
    stride = [0] * len(dims)
    for d, step in zip(dims, arrays.row_major([source.shape[d] for d in dims])):
        stride[d] = step
    with zipfile.ZipFile(f, "w", zipfile.ZIP_STORED) as z:
        z.writestr("archive/data.pkl", _tensor_pickle(source, stride))
        z.writestr("archive/byteorder", "little")
        with z.open(zipfile.ZipInfo("archive/data/0"), "w", force_zip64=True) as out:
            for box in source.boxes():
                out.write(source.read(box).transpose(dims).tobytes())
        z.writestr("archive/version", "3\n")


def _tensor_pickle(source: arrays.Source, stride: Sequence[int]) -> bytes:
    """The instructions that torch.save itself would write for a tensor that begins its storage."""

    def number(n: int) -> bytes:
        raw = n.to_bytes(n.bit_length() // 8 + 1, "little", signed=True)
        return b"\x8a" + bytes([len(raw)]) + raw

    def text(s: str) -> bytes:
        return b"X" + struct.pack("<I", len(s)) + s.encode()

    def name(module: str, attribute: str) -> bytes:
        return f"c{module}\n{attribute}\n".encode()

    def numbers(values: Sequence[int]) -> bytes:
        return b"(" + b"".join(map(number, values)) + b"t"

    dtype, count = source.dtype, source.numel
    legacy = _STORAGES.get(dtype.name)
    kind = name("torch", legacy + "Storage") if legacy else name("torch.storage", "UntypedStorage")
    storage = (
        b"(" + text("storage") + kind + text("0") + text("cpu") + number(count if legacy else count * dtype.itemsize) + b"tQ"
    )
    rest = number(0) + numbers(source.shape) + numbers(stride) + b"\x89" + name("collections", "OrderedDict") + b")R"
    rest += b"" if legacy else name("torch", dtype.name)
    return (
        b"\x80\x02"
        + name("torch._utils", "_rebuild_tensor_v2" if legacy else "_rebuild_tensor_v3")
        + b"("
        + storage
        + rest
        + b"tR."
    )


# ---- reading -----------------------------------------------------------------------------------------------------------
_Makers = Dict[str, Callable[[], arrays.Source]]  # tensors of a file by name, each made when it is asked for


def split_name(text: str) -> tuple[str, str] | None:
    """ "F.pt:layer.0.weight" -> ("F.pt", "layer.0.weight"); the name is '' where the text is a file alone; None for no file."""
    for kind in KINDS:
        at = text.find(kind)
        while at >= 0:
            end = at + len(kind)
            if end == len(text) or text[end] == ":":
                return text[:end], text[end + 1 :]
            at = text.find(kind, end)
    return None


def read(path: str, name: str = "") -> arrays.Source:
    """The `Source` of a tensor in a file; `name` chooses one of several. `GdbextError` where it cannot be read."""
    reader = {".npy": _read_npy, ".safetensors": _read_safetensors, ".pt": _read_pt}[os.path.splitext(path)[1]]
    with open_regular(path) as f, reading(path):
        found = reader(path, f)
        if not name and len(found) == 1:
            name = next(iter(found))
        if name not in found:
            names = ", ".join(n[:80] for n in list(found)[:6]) + (", …" if len(found) > 6 else "")
            what = f"has no tensor {name}" if name else f"holds {len(found)} tensors"
            raise GdbextError(f"{path} {what}; name one as {path}:NAME of {names or 'none'}")
        return found[name]()


def _sizes(values: Any) -> list[int]:
    """Sizes or strides as a file gives them: a short list of ints that are not negative; `ValueError` for anything else."""
    if not isinstance(values, (list, tuple)) or len(values) > MAX_DIMS:
        raise ValueError("its sizes are no short list")
    if not all(type(n) is int and 0 <= n < 1 << 62 for n in values):
        raise ValueError("its sizes are no numbers from 0 up")
    return list(values)


class _FileMemory:
    """A file's bytes as memory: an address is an offset."""

    def __init__(self, path: str, f: BinaryIO) -> None:
        self.bytes = FileBytes(path, os.fdopen(os.dup(f.fileno()), "rb"))
        self.read = self.bytes.read

    def read_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of `[(offset, size)]`."""
        return [self.read(*one) for one in ranges]


def _stored(
    path: str, f: BinaryIO, label: str, dtype: DType, shape: list[int], offset: int, stride: list[int] | None = None
) -> arrays.Source:
    """The `Source` of the elements that a file stores from `offset` on; `shape` and `stride` in elements. `ValueError` where the
    file is shorter."""
    steps = arrays.row_major(shape) if stride is None else stride
    memory = _FileMemory(path, f)
    reach = 1 + sum((n - 1) * s for n, s in zip(shape, steps)) if math.prod(shape) else 0
    if offset + reach * dtype.itemsize > len(memory.bytes):
        raise ValueError("it is shorter than its tensor")
    placed = arrays.Placed(memory, label, dtype, steps, offset, reach * dtype.itemsize)
    return arrays.Source(shape, dtype, label, lambda box: arrays.read_box(placed, box), steps)


def _read_npy(path: str, f: BinaryIO) -> _Makers:
    head = f.read(12)
    if len(head) < 12 or head[:6] != b"\x93NUMPY" or head[6] not in (1, 2, 3):
        raise GdbextError(f"{path} is no .npy file, or it is damaged")
    start, width = (10, 2) if head[6] == 1 else (12, 4)
    length = int.from_bytes(head[8 : 8 + width], "little")
    if length > MAX_NPY_HEADER:
        raise ValueError(f"its header has {length} bytes")
    f.seek(start)
    try:
        header = ast.literal_eval(f.read(length).decode("latin-1"))
    except SyntaxError:
        raise ValueError("its header is no dict") from None
    descr, shape, columns = header["descr"], _sizes(header["shape"]), header["fortran_order"]
    names = {arrays.stored_dtype(dtypes.DTYPES[n]).str: n for n in _NPY}
    if not isinstance(descr, str) or descr not in names:
        raise GdbextError(f"{path}: its dtype {str(descr)[:40]!r} is none of torch's")
    dtype = dtypes.DTYPES[names[descr]]
    stride = list(reversed(arrays.row_major(shape[::-1]))) if columns else None
    return {"": lambda: _stored(path, f, path, dtype, shape, start + length, stride)}


def _read_safetensors(path: str, f: BinaryIO) -> _Makers:
    size, head = os.fstat(f.fileno()).st_size, f.read(8)
    length = int.from_bytes(head, "little")
    if len(head) < 8 or length > size - 8:
        raise GdbextError(f"{path} is no safetensors file, or it is damaged")
    if length > MAX_HEADER:
        raise GdbextError(f"{path}: a header of {length >> 20} MiB is not read, of {MAX_HEADER >> 20} MiB it is")
    header = json_of(f.read(length), path)
    if not isinstance(header, dict):
        raise ValueError("its header is no dict")
    names = {v: k for k, v in _SAFETENSORS.items()}

    def one(name: str, entry: Any) -> arrays.Source:
        code, shape, (start, end) = entry["dtype"], _sizes(entry["shape"]), _sizes(entry["data_offsets"])
        if not isinstance(code, str) or code not in names:
            raise GdbextError(f"{path}: {name[:80]} is of dtype {str(code)[:40]}, which is not known here")
        own = dtypes.DTYPES[names[code]]
        if not start <= end <= size - 8 - length or math.prod(shape) * own.itemsize != end - start:
            raise ValueError(f"{name[:80]} does not lie where it says")
        return _stored(path, f, f"{path}:{name}", own, shape, 8 + length + start)

    return {name: functools.partial(one, name, entry) for name, entry in header.items() if name != "__metadata__"}


class _Made:
    """A stand-in for an object that torch would have made: its maker, and the arguments."""

    def __init__(self, name: str, arguments: tuple[Any, ...] = ()) -> None:
        self.name, self.arguments = name, arguments

    def __call__(self, *arguments: Any) -> Any:
        return _Dict() if self.name == "collections.OrderedDict" else _Made(self.name, arguments)


class _Dict(Dict[Any, Any]):
    """A dict of a pickle. Its keys must be plain: the hash of nested tuples could take for ever."""

    def __setitem__(self, key: Any, value: Any) -> None:
        if not isinstance(key, (str, int, float, type(None))):
            raise pickle.UnpicklingError(f"a {type(key).__name__} as a key")
        super().__setitem__(key, value)

    def __setstate__(self, state: Any) -> None:
        """A state_dict carries `_metadata`, which is left out."""


class _Unpickler(pickle._Unpickler):  # the C one makes room for whatever index a memo is given
    """Knows the instructions of torch.save, and stand-ins for the names that tensors are made of. Any other name ends it.

    Nothing is imported or called. Each instruction is paid for out of a `Budget`.
    """

    KNOWN = (
        "torch._utils._rebuild_tensor_v2",
        "torch._utils._rebuild_tensor_v3",
        "torch._utils._rebuild_parameter",
        "collections.OrderedDict",
        "torch.storage.UntypedStorage",
        "torch.Size",
    )
    INSTRUCTIONS = (
        "PROTO FRAME STOP MARK POP POP_MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT "
        "BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 "
        "EMPTY_LIST APPEND APPENDS EMPTY_DICT SETITEM SETITEMS BINPUT LONG_BINPUT MEMOIZE BINGET LONG_BINGET "
        "GLOBAL STACK_GLOBAL REDUCE BUILD BINPERSID"
    ).split()
    dispatch = {getattr(pickle, name)[0]: pickle._Unpickler.dispatch[getattr(pickle, name)[0]] for name in INSTRUCTIONS}

    def __init__(self, path: str, f: IO[bytes], budget: Budget) -> None:
        super().__init__(f)
        self.path, self.budget = path, budget
        steps = {**type(self).dispatch, pickle.EMPTY_DICT[0]: lambda own: own.append(_Dict())}
        self.__dict__["dispatch"] = {code: self._paid(step) for code, step in steps.items()}

    def _paid(self, step: Callable[[Any], None]) -> Callable[[Any], None]:
        def run(own: Any) -> None:
            self.budget.take(_OPCODE)
            step(own)

        return run

    def find_class(self, module: str, name: str) -> Any:
        """A stand-in for a name that tensors are made of; `GdbextError` for any other."""
        full = f"{module}.{name}"
        if full in self.KNOWN or (module == "torch" and (name in dtypes.DTYPES or name.endswith("Storage"))):
            return _Made(full)
        raise GdbextError(f"{self.path} holds a {full[:100]}, which is not read here")

    def persistent_load(self, pid: Any) -> Any:
        """A stand-in for a storage: torch.save's ("storage", its class, the file's name, its device, its number of elements)."""
        if not isinstance(pid, tuple):
            raise pickle.UnpicklingError("a storage that is no tuple")
        return _Made("storage", pid[1:])


def _directory_size(f: BinaryIO) -> int:
    """Bytes of a zip's directory, by its last record (and by the one for big files, before it)."""
    size = os.fstat(f.fileno()).st_size
    f.seek(max(0, size - (1 << 16) - 128))
    tail = f.read()
    found = [0]
    for mark, at, form in ((b"PK\5\6", 12, "<I"), (b"PK\6\6", 40, "<Q")):
        start = tail.rfind(mark)
        if 0 <= start <= len(tail) - at - 8:
            found += struct.unpack_from(form, tail, start + at)
    return max(n for n in found if n != 0xFFFFFFFF)


def _read_pt(path: str, f: BinaryIO) -> _Makers:
    if _directory_size(f) > MAX_HEADER:
        raise GdbextError(f"{path}: its directory is longer than {MAX_HEADER >> 20} MiB")
    budget = Budget(path, MAX_MEMORY, MAX_SECONDS)
    with reading(path, pickle.UnpicklingError, zlib.error, RuntimeError):  # RuntimeError: zipfile's, of an encrypted entry
        try:
            z = zipfile.ZipFile(f)
        except zipfile.BadZipFile:
            raise GdbextError(f"{path} is no zip file: torch.save's old format is not read here, save it again") from None
        with z:
            infos = {i.filename: i for i in z.infolist()}
            pickled = [n for n in infos if n.endswith("/data.pkl")]
            if len(pickled) != 1 or infos[pickled[0]].file_size > MAX_HEADER:
                raise GdbextError(f"{path} is no file that torch.save wrote")
            prefix = pickled[0][: -len("data.pkl")]
            try:
                if prefix + "byteorder" in infos and z.open(prefix + "byteorder").read(16) != b"little":
                    raise GdbextError(f"{path} was written on a big-endian machine")
                with z.open(pickled[0]) as data:
                    value = _Unpickler(path, data, budget).load()
            except zipfile.BadZipFile as e:
                raise ValueError(str(e)) from None
    found: dict[str, _Made] = {}
    _collect(value, "", found, budget)
    return {name: functools.partial(_rebuilt, path, f, name, made, prefix, infos) for name, made in found.items()}


def _collect(value: Any, name: str, found: dict[str, _Made], budget: Budget, depth: int = 0) -> None:
    """Tensors in dicts and lists, named by their keys joined with dots."""
    budget.take(_OPCODE + len(name))
    if isinstance(value, _Made):
        if value.name.startswith("torch._utils._rebuild_"):
            found[name] = value
    elif depth < MAX_DEPTH and isinstance(value, (dict, list, tuple)):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            _collect(inner, f"{name}.{key}" if name else str(key), found, budget, depth + 1)


def _rebuilt(path: str, f: BinaryIO, name: str, made: _Made, prefix: str, infos: dict[str, zipfile.ZipInfo]) -> arrays.Source:
    if made.name == "torch._utils._rebuild_parameter":
        made = made.arguments[0]
    storage, offset, shape, stride = made.arguments[:4]
    kind, key, _, _ = storage.arguments[:4]
    code = (made.arguments[6] if made.name.endswith("_v3") else kind).name.rpartition(".")[2]
    dtype = dtypes.DTYPES[code if made.name.endswith("_v3") else {v + "Storage": k for k, v in _STORAGES.items()}[code]]
    shape, stride, (offset,) = _sizes(_plain(shape)), _sizes(_plain(stride)), _sizes([offset])
    if len(shape) != len(stride) or not re.fullmatch(r"[\w.-]{1,80}", str(key)):
        raise ValueError(f"its tensor {name[:80]}")
    info = infos[f"{prefix}data/{key}"]
    needed = (offset + 1 + sum((n - 1) * s for n, s in zip(shape, stride))) * dtype.itemsize if math.prod(shape) else 0
    if needed > info.file_size:
        raise ValueError(f"its tensor {name[:80]} reaches outside its storage")
    if info.compress_type != zipfile.ZIP_STORED:
        raise GdbextError(f"{path} is a compressed zip, which torch.save does not write")
    f.seek(info.header_offset)
    head = f.read(30)
    if head[:4] != b"PK\x03\x04":
        raise ValueError(f"its storage {key} is not where it says")
    start = info.header_offset + 30 + sum(struct.unpack("<HH", head[26:30])) + offset * dtype.itemsize
    return _stored(path, f, f"{path}:{name}" if name else path, dtype, shape, start, stride)


def _plain(value: Any) -> Any:
    return value.arguments[0] if isinstance(value, _Made) else value  # torch.Size((2, 3))
