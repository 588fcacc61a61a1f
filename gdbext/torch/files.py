"""Tensors in files: .npy, .safetensors and torch.save's .pt, written and read without torch. Needs numpy.

Formats: numpy's NEP 1; the safetensors specification (an 8-byte length, a JSON header, the data); torch.save's zip (data.pkl beside one
file per storage; torch/serialization.py, torch/_utils.py). A .pt is written as the few pickle instructions that plain
torch.load(weights_only=True) accepts, and read by an unpickler that knows a handful of names and makes nothing else.
"""

import ast
import json
import math
import os
import pickle
import struct
import zipfile
import zlib

from ..errors import GdbextError
from ..render.files import refuse_existing, writing
from . import arrays, dtypes

KINDS = (".npy", ".safetensors", ".pt")
MAX_HEADER = 100 << 20  # bytes, as the safetensors library bounds it
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


# What zipfile and pickle raise on damaged files.
_DAMAGE = (
    pickle.UnpicklingError,
    EOFError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    RuntimeError,
    OverflowError,
    MemoryError,
    struct.error,
    zlib.error,
)


# ---- writing -----------------------------------------------------------------------------------------------------------
def save(tensor, path, force=False):
    """Writes a tensor whose values can be read to `path`, whose ending chooses the format. -> (bytes, the torch dtype written).

    Conjugate and negative views are written resolved, quantized tensors as the float32 they stand for. The file appears whole or not at
    all; one that is there already is replaced only with `force`. `GdbextError` for a dtype that the format lacks.
    """
    refuse_existing(path, "-save", force)
    kind = os.path.splitext(path)[1]
    if kind not in KINDS:
        raise GdbextError(f"-save {path}: the file's name must end in {', '.join(KINDS)}")
    if tensor.layout.startswith("sparse_"):
        raise GdbextError(f"-save {path}: a {tensor.layout} tensor has several parts, which are not saved here")
    source = arrays.of_tensor(tensor)
    if arrays.resolved(tensor):
        dtype, read = source.dtype, source.read
    else:
        read = source.numbers
        box = next(iter(source.boxes()), None)
        dtype = dtypes.DTYPES[read(box).dtype.name if box is not None else "float32" if tensor.quantizer else source.dtype.name]
    source = arrays.Source(source.shape, dtype, source.name, read, source.order)
    write = {".npy": _write_npy, ".safetensors": _write_safetensors, ".pt": _write_pt}[kind]
    known = {".npy": _NPY, ".safetensors": _SAFETENSORS, ".pt": dtypes.DTYPES}[kind]
    if dtype.name not in known:
        others = "as .pt" if kind == ".safetensors" or dtype.name not in _SAFETENSORS else "as .safetensors or .pt"
        raise GdbextError(f"-save {path}: a {kind} file has no torch.{dtype.name}: save it {others}")
    with writing(path, "-save", force) as f:
        write(f, source)
        return f.seek(0, os.SEEK_END), "torch." + dtype.name


def _write_npy(f, source):
    import numpy

    header = {"descr": arrays.stored_dtype(source.dtype).str, "fortran_order": False, "shape": source.shape}
    numpy.lib.format.write_array_header_1_0(f, header)
    _write_rows(f, source)


def _write_safetensors(f, source):
    size = source.numel * source.dtype.itemsize
    entry = {"dtype": _SAFETENSORS[source.dtype.name], "shape": list(source.shape), "data_offsets": [0, size]}
    header = json.dumps({"tensor": entry}).encode()
    header += b" " * (-len(header) % 8)
    f.write(struct.pack("<Q", len(header)) + header)
    _write_rows(f, source)


def _write_rows(f, source):
    """All elements in row-major order."""
    import numpy

    if source.is_row_major:
        for box in source.boxes():
            f.write(source.read(box).tobytes())
        return
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
            if hasattr(whole._mmap, "madvise"):
                import mmap

                whole._mmap.madvise(mmap.MADV_DONTNEED)  # what is in the file need not stay in this process
            fresh = 0
    whole.flush()


def _write_pt(f, source):
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


def _tensor_pickle(source, stride):
    """The instructions that torch.save itself would write for a tensor that begins its storage."""

    def number(n):
        raw = n.to_bytes(n.bit_length() // 8 + 1, "little", signed=True)
        return b"\x8a" + bytes([len(raw)]) + raw

    def text(s):
        return b"X" + struct.pack("<I", len(s)) + s.encode()

    def name(module, attribute):
        return f"c{module}\n{attribute}\n".encode()

    def numbers(values):
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
def split_name(text):
    """ "F.pt:layer.0.weight" -> ("F.pt", "layer.0.weight"); the name is '' where the whole text is a file; None when it is none."""
    for kind in KINDS:
        at = text.find(kind)
        while at >= 0:
            end = at + len(kind)
            if end == len(text) or text[end] == ":":
                return text[:end], text[end + 1 :]
            at = text.find(kind, end)
    return None


def read(path, name=""):
    """The `Source` of a tensor in a file; `name` says which where it holds several. `GdbextError` when it cannot be had."""
    reader = {".npy": _read_npy, ".safetensors": _read_safetensors, ".pt": _read_pt}[os.path.splitext(path)[1]]
    try:
        found = reader(path)
    except OSError as e:
        raise GdbextError(f"{path}: {e.strerror or e}") from None
    if not name and len(found) == 1:
        name = next(iter(found))
    if name not in found:
        names = ", ".join(list(found)[:6]) + (", …" if len(found) > 6 else "")
        what = f"has no tensor {name}" if name else f"holds {len(found)} tensors"
        raise GdbextError(f"{path} {what}; name one as {path}:NAME of {names or 'none'}")
    return found[name]()


def _source(array, dtype, label):
    """Of a numpy array, mapped or not, of stored elements."""
    order = tuple(s // array.itemsize for s in array.strides)
    return arrays.Source(array.shape, dtype, label, lambda box: array[box], order)


def _mapped(path, dtype, shape, offset, stride=None):
    """Stored elements of a file; `shape`, `stride` in elements."""
    import numpy

    kind = arrays.stored_dtype(dtype)
    if not math.prod(shape):
        return numpy.zeros(shape, kind)
    if stride is None:
        return numpy.memmap(path, kind, "r", offset, tuple(shape))
    reach = 1 + sum((n - 1) * s for n, s in zip(shape, stride))
    flat = numpy.memmap(path, kind, "r", offset, (reach,))
    return numpy.lib.stride_tricks.as_strided(flat, shape, [s * kind.itemsize for s in stride], writeable=False)


def _read_npy(path):
    damaged = GdbextError(f"{path} is no .npy file, or it is damaged")
    with open(path, "rb") as f:
        head = f.read(12)
        size = os.fstat(f.fileno()).st_size
        if len(head) < 12 or head[:6] != b"\x93NUMPY" or head[6] not in (1, 2, 3):
            raise damaged
        start, width = (10, 2) if head[6] == 1 else (12, 4)
        f.seek(start)
        length = int.from_bytes(head[8 : 8 + width], "little")
        text = f.read(min(length, 1 << 16))
    try:
        header = ast.literal_eval(text.decode("latin-1"))
        descr, shape, columns = header["descr"], [int(n) for n in header["shape"]], header["fortran_order"]
    except (ValueError, SyntaxError, TypeError, KeyError, RecursionError, MemoryError):
        raise damaged from None
    names = {arrays.stored_dtype(dtypes.DTYPES[n]).str: n for n in _NPY}
    if not isinstance(descr, str) or descr not in names:
        raise GdbextError(f"{path}: its dtype {str(descr)[:40]!r} is none of torch's")
    dtype = dtypes.DTYPES[names[descr]]
    if min(shape, default=0) < 0 or start + length + math.prod(shape) * dtype.itemsize > size:
        raise damaged
    stride = list(reversed(arrays.row_major(shape[::-1]))) if columns else None
    return {"": lambda: _source(_mapped(path, dtype, shape, start + length, stride), dtype, path)}


def _read_safetensors(path):
    damaged = GdbextError(f"{path} is no safetensors file, or it is damaged")
    names = {v: k for k, v in _SAFETENSORS.items()}
    with open(path, "rb") as f:
        head = f.read(8)
        size = os.fstat(f.fileno()).st_size
        (length,) = struct.unpack("<Q", head) if len(head) == 8 else (size,)
        if length > min(size - 8, MAX_HEADER):
            raise damaged
        try:
            header = json.loads(f.read(length))
        except (ValueError, RecursionError):
            raise damaged from None

    def one(name, entry):
        try:
            dtype, shape, (start, end) = entry["dtype"], [int(n) for n in entry["shape"]], entry["data_offsets"]
        except (KeyError, TypeError, ValueError):
            raise damaged from None
        if dtype not in names:
            raise GdbextError(f"{path}: {name} is of dtype {dtype}, which is not known here")
        own = dtypes.DTYPES[names[dtype]]
        if (
            min(shape, default=1) < 0
            or not 0 <= start <= end <= size - 8 - length
            or math.prod(shape) * own.itemsize != end - start
        ):
            raise damaged
        return _source(_mapped(path, own, shape, 8 + length + start), own, f"{path}:{name}")

    if not isinstance(header, dict):
        raise damaged
    return {name: (lambda n=name, e=entry: one(n, e)) for name, entry in header.items() if name != "__metadata__"}


class _Made:
    """Stands for an object that torch would have made: what made it, and of what."""

    def __init__(self, name, arguments=()):
        self.name, self.arguments = name, arguments

    def __call__(self, *arguments):
        return {} if self.name == "collections.OrderedDict" else _Made(self.name, arguments)


class _Unpickler(pickle.Unpickler):
    """Knows the names that tensors are made of, as stand-ins; every other name ends it. Nothing is imported or called."""

    def find_class(self, module, name):
        full = f"{module}.{name}"
        known = (
            "torch._utils._rebuild_tensor_v2",
            "torch._utils._rebuild_tensor_v3",
            "torch._utils._rebuild_parameter",
            "collections.OrderedDict",
            "torch.storage.UntypedStorage",
            "torch.Size",
        )
        if full in known or (module == "torch" and (name in dtypes.DTYPES or name.endswith("Storage"))):
            return _Made(full)
        raise pickle.UnpicklingError(f"it holds a {full}, which is not read here")

    def persistent_load(self, pid):
        return _Made("storage", tuple(pid[1:]))


def _read_pt(path):
    try:
        with zipfile.ZipFile(path) as z:
            pickled = [n for n in z.namelist() if n.endswith("/data.pkl")]
            if len(pickled) != 1 or z.getinfo(pickled[0]).file_size > MAX_HEADER:
                raise GdbextError(f"{path} is no file that torch.save wrote")
            with z.open(pickled[0]) as f:
                value = _Unpickler(f).load()
            prefix = pickled[0][: -len("data.pkl")]
            if prefix + "byteorder" in z.namelist() and z.read(prefix + "byteorder") != b"little":
                raise GdbextError(f"{path} was written on a big-endian machine")
            infos = {i.filename: i for i in z.infolist()}
    except zipfile.BadZipFile:
        raise GdbextError(f"{path} is no zip file: torch.save's old format is not read here, save it again") from None
    except GdbextError:
        raise
    except _DAMAGE as e:
        raise GdbextError(
            f"{path}: its data.pkl cannot be read: {str(e).splitlines()[0] if str(e) else type(e).__name__}"
        ) from None
    found = {}
    _collect(value, "", found)
    return {name: (lambda n=name, v=made: _rebuilt(path, n, v, prefix, infos)) for name, made in found.items()}


def _collect(value, name, found, depth=0):
    """Tensors in dicts and lists, named by their keys joined with dots."""
    if isinstance(value, _Made):
        if value.name.startswith("torch._utils._rebuild_"):
            found[name] = value
        return
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    for key, inner in items:
        if depth < 20:
            _collect(inner, f"{name}.{key}" if name else str(key), found, depth + 1)


def _rebuilt(path, name, made, prefix, infos):
    damaged = GdbextError(f"{path}: its tensor {name or '(unnamed)'} is damaged")
    if made.name.endswith("_parameter"):
        made = made.arguments[0]
    try:
        storage, offset, shape, stride = made.arguments[:4]
        kind, key, _, _ = storage.arguments[:4]
        if made.name.endswith("_v3"):
            dtype = dtypes.DTYPES[made.arguments[6].name.rpartition(".")[2]]
        else:
            dtype = dtypes.DTYPES[{v + "Storage": k for k, v in _STORAGES.items()}[kind.name.rpartition(".")[2]]]
        shape, stride = [int(n) for n in _plain(shape)], [int(s) for s in _plain(stride)]
        info = infos[f"{prefix}data/{key}"]
        needed = (int(offset) + 1 + sum((n - 1) * s for n, s in zip(shape, stride))) * dtype.itemsize if math.prod(shape) else 0
        if min(shape + stride + [offset], default=0) < 0 or len(shape) != len(stride) or needed > info.file_size:
            raise damaged
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        raise damaged from None
    if info.compress_type != zipfile.ZIP_STORED:
        raise GdbextError(f"{path} is a compressed zip, which torch.save does not write")
    with open(path, "rb") as f:
        f.seek(info.header_offset)
        head = f.read(30)
        if head[:4] != b"PK\x03\x04":
            raise damaged
        start = info.header_offset + 30 + sum(struct.unpack("<HH", head[26:30]))
        if start + info.file_size > os.fstat(f.fileno()).st_size:
            raise damaged
    return _source(
        _mapped(path, dtype, shape, start + offset * dtype.itemsize, stride), dtype, f"{path}:{name}" if name else path
    )


def _plain(value):
    return value.arguments[0] if isinstance(value, _Made) else value  # torch.Size((2, 3))
