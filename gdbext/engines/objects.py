"""Shared by the readers of engines' Python objects: paths that differ by release, objects that frames hold, lists of numbers."""

from __future__ import annotations

import array
import itertools
from typing import Any, Callable, Collection, Iterable, Iterator, Mapping, Sequence, Tuple, TypeVar

from .. import log
from ..access.retry import retry_reading, settled_counts
from ..cpython import tasks
from ..cpython.frames import PyFrame
from ..cpython.objects import Object
from ..cpython.runtime import PyThread, Runtime
from ..errors import GdbextError, LayoutError, MissingError, NotFoundError
from ..torch.tensor import Tensor
from ..torch.tensor_impl import is_tensor, read_tensor
from . import absences
from .columns import integers

Places = Sequence[Tuple[str, str]]
T = TypeVar("T")

MAX_THREADS = 256
MAX_NUMBERS = 1 << 28
MAX_STEPS = 8  # of a scheduler, allowed between two consecutive readings of its counter
MAX_TOKENS_SHOWN = 4096
MOMENT = 0.5  # seconds for which frames of a process that runs on are read again


# ---- attributes ----------------------------------------------------------------------------------------------------------
def path(obj: Object, text: str) -> Object:
    """The Object at a dotted path of attributes; `NotFoundError` where one is missing."""
    for name in filter(None, text.split(".")):
        obj = obj.attr(name)
    return obj


def has(obj: Object, name: str) -> bool:
    """Whether an object has an attribute, None or not."""
    try:
        obj.attr(name)
    except GdbextError as e:
        log.passed_over(e)
        return False
    return True


def at(obj: Object, text: str) -> Object | None:
    """The Object at a dotted path; None where it is missing, or is None, or a plain number."""
    try:
        found = path(obj, text)
    except (GdbextError, AttributeError) as e:
        log.passed_over(e)
        return None
    return found if hasattr(found, "is_none") and not found.is_none() else None


def is_set(obj: Object, name: str) -> bool:
    """Whether an object has an attribute that is not None."""
    return at(obj, name) is not None


def optional(obj: Object, name: str, convert: str = "integer", default: Any = None) -> Any:
    """A plain attribute, converted by a method of `Object`. `default` where it is None, or where the release lacks it
    (`absences`); None where it is missing all the same, or of another type."""
    try:
        value = obj.attr(name)
        if not hasattr(value, "attr"):
            return value
        return default if value.is_none() else getattr(value, convert)()
    except MissingError as e:
        log.passed_over(e)
        return default if absences.holds_default(obj, name) else None
    except GdbextError as e:
        log.passed_over(e)
        return None


def needed(obj: Object, name: str) -> int:
    """A number without which nothing can be said; a `NotFoundError` says that it is not there."""
    value = optional(obj, name)
    if value is None:
        new = obj.rt.target.missed.new if isinstance(obj.rt.target.missed, absences.Absences) else ""
        raise NotFoundError(f"{new}{obj.type_name}.{name} is not there, or no number")
    return int(value)


def first_present(obj: Object, places: Places) -> Object | None:
    """The Object at the first of `((first release, path), …)`, the newest release first, that exists and is not None;
    else None."""
    return next((found for _, text in places for found in [at(obj, text)] if found is not None), None)


def first_integer(obj: Object, places: Places) -> int | None:
    """The int at the first of `((first release, path), …)` that exists, else None."""
    for _, text in places:
        owner, _, name = text.rpartition(".")
        holder = at(obj, owner) if owner else obj
        value = optional(holder, name) if holder is not None else None
        if value is not None:
            return int(value)
    return None


def address_of_none(rt: Runtime) -> int:
    """The address of None in a process."""

    def find() -> int:
        address = rt.library.symbol("_Py_NoneStruct")  # exported by every CPython
        if address is None or not rt.object(address).is_none():
            raise LayoutError(f"{rt.target.describe()}: the object None is not where the symbol of {rt.library.path} puts it")
        return address

    return rt.target.cached("address of None", find)


def counted(rt: Runtime, obj: Object, names: Mapping[str, str]) -> dict[str, int]:
    """An object's counters, `names`: {in words: attribute}, as `settled_counts`; missing ones are left out."""

    def read() -> dict[str, int]:
        values = ((what, optional(obj, name)) for what, name in names.items())
        return {what: value for what, value in values if isinstance(value, int)}

    return settled_counts(rt.target, read, MAX_STEPS)


def at_once(rt: Runtime, read: Callable[[], T], lasts: Callable[[], bool] = lambda: True) -> T:
    """`read()`, for one part of a larger read. If the process changes during it, only this part is read again, for `MOMENT`; that
    costs less than to read everything again. The tries end once `lasts()` says that the object is gone."""
    again = itertools.chain([rt.target.drop_pages], itertools.repeat(rt.target.refresh_pages))  # what the tries needed, at once
    return retry_reading(rt.target, absences.forgetting(rt, read), MOMENT, MOMENT, lambda: next(again)(), lasts)


# ---- frames --------------------------------------------------------------------------------------------------------------
def settled_frames(rt: Runtime) -> Iterator[list[PyFrame]]:
    """Every thread's frames. Left out are threads that run on during the read and whose frames cannot be read."""
    for thread in rt.threads()[:MAX_THREADS]:
        try:
            yield rt.frames(thread)
        except GdbextError as e:
            log.passed_over(e)
            if rt.target.is_stopped:
                raise


def frames_are_whole(rt: Runtime) -> bool:
    """Whether the frames of every thread can be read; otherwise an object that is not found in them may still be there. A running
    main thread has no frame for a moment when it is between two of them."""
    found = list(settled_frames(rt))
    return len(found) == len(rt.threads()[:MAX_THREADS]) and (rt.target.is_stopped or not found or bool(found[0]))


def in_frames(rt: Runtime, roots: Mapping[str, str]) -> Object | None:
    """The object that `roots` ({class name: path}) finds from a variable of any frame, the outermost frames first; else None. The
    result is kept until the process may have run.

    A path is dotted, or several are separated by |: then the first that exists counts."""
    found: Object | None = rt.target.cached(
        ("in frames", tuple(roots.items())),
        lambda: next((found for frames in settled_frames(rt) for found in _among(reversed(frames), roots)), None),
    )
    return found


def sought(rt: Runtime, find: Callable[[Runtime], Object | None]) -> Object | None:
    """The result of `find` in frames, or None. Frames of a thread that runs on are inconsistent now and then. So the search is
    repeated for `MOMENT`, which costs less than to read everything again."""

    def read() -> Object:
        found = find(rt)
        if found is None:
            raise NotFoundError("no frame holds it")
        return found

    try:
        return retry_reading(rt.target, read, MOMENT, MOMENT)
    except NotFoundError as e:
        log.passed_over(e)
        return None


def needed_in_frames(rt: Runtime, roots: Mapping[str, str], missing: str) -> Object:
    """As `in_frames`; where there is no such object, a `NotFoundError` that says what is `missing`."""
    found = in_frames(rt, roots)
    if found is None:
        raise NotFoundError(f"{rt.target.describe()}: {missing}")
    return found


def in_tasks(rt: Runtime, roots: Mapping[str, str]) -> Object | None:
    """As `in_frames`, from the variables of the asyncio tasks that are suspended."""
    waiting, _ = tasks.tasks(rt)
    return next((found for task in waiting for found in _among(task.frames, roots)), None)


def _among(frames: Iterable[PyFrame], roots: Mapping[str, str]) -> Iterator[Object]:
    for frame in frames:
        try:
            held = frame.locals()
        except GdbextError as e:
            log.passed_over(e)
            continue
        for _, value in held:
            try:  # inner frames of a running thread hold anything
                if value is None or not hasattr(value, "type") or value.type_name not in roots:
                    continue
                found = _led_to(value, roots[value.type_name])
            except GdbextError as e:
                log.passed_over(e)
                continue
            if found is not None:
                yield found


def thread_in(rt: Runtime, function: str) -> PyThread | None:
    """The first thread with a frame of a function of that name, or of that last part of a name; else None."""
    for thread in rt.threads()[:MAX_THREADS]:
        try:
            if any(f.function.rpartition(".")[2] == function for f in rt.frames(thread)):
                return thread
        except GdbextError as e:
            log.passed_over(e)
            if rt.target.is_stopped:
                raise
    return None


def _led_to(value: Object, places: str) -> Object | None:
    """The object at the first of the paths that exists; of a list its first element (one per pipeline stage); else None."""
    for place in places.split("|"):
        found = at(value, place)
        if found is not None:
            return found.item(0) if found.isa("list") else found
    return None


def updating(rt: Runtime, folders: tuple[str, ...], reading: Collection[str], files: Collection[str] = ()) -> str:
    """The function that a thread is in and that changes the data being read, in words, or ''. Its file is one of `files` (none:
    all) in a folder with one of the given ends; functions of `reading` do not count."""
    for frames in settled_frames(rt):
        for frame in frames:
            folder, _, name = frame.file.rpartition("/")
            function = frame.function.rpartition(".")[2]
            if not folder.endswith(folders) or (files and name not in files):
                continue
            if function not in reading and not function.startswith("__"):
                return f"{frame.function} ({name}:{frame.line})"
    return ""


def stands_in(rt: Runtime, functions: Collection[str], folder: str = "") -> str:
    """The named function that a thread is in, in words, or ''. The function's file must be in a folder with the given end."""
    for frames in settled_frames(rt):
        for frame in frames:
            above, _, name = frame.file.rpartition("/")
            if frame.function.rpartition(".")[2] in functions and above.endswith(folder):
                return f"{frame.function} ({name}:{frame.line})"
    return ""


# ---- numbers -------------------------------------------------------------------------------------------------------------
def numbers(rt: Runtime, obj: Object) -> list[int] | None:
    """Ints of a tensor (int32 or int64, on the host), a list, a tuple or an array.array; None for a tensor on a device."""
    if is_tensor(obj):
        tensor = read_tensor(rt, obj.address)
        if tensor.numel == 0:
            return []
        if tensor.doubt:
            return None
        code = {("int64", 8): "q", ("int32", 4): "i"}.get((tensor.dtype.name, tensor.dtype.itemsize))
        shape, stride, count = tensor.shape or (), tensor.stride or (), tensor.numel or 0
        if code is None or count > MAX_NUMBERS or len(shape) != 1 or stride != (1,) and count > 1:
            raise LayoutError(f"the tensor at {obj.address:#x} is no plain list of numbers: {tensor.dtype.name} {list(shape)}")
        found = array.array(code)
        found.frombytes(tensor.read_bytes(0, count * tensor.dtype.itemsize))
        return found.tolist()
    if obj.isa("list", "tuple", "array.array"):
        return numbers_until(rt, obj, MAX_NUMBERS)
    raise GdbextError(f"the {obj.type_name} at {obj.address:#x} holds no numbers that can be read")


def left_out(tensor: Tensor) -> str:
    """Why a tensor with doubtful values is not compared, in one clause."""
    if tensor.unavailable and not (tensor.on_device and tensor.storage_data):
        return tensor.unavailable
    why = f" ({tensor.unfinished})" if not tensor.unavailable else ""
    return f"it is on the device ({tensor.device}): not compared{why}"


def numbers_until(rt: Runtime, obj: Object, limit: int) -> list[int]:
    """At most `limit` ints of a list, tuple or array.array, from its start."""
    if obj.isa("array.array"):
        return [int(n) for n in obj.array_numbers(0, limit)[1]]
    return list(integers(rt, obj.element_addresses(limit)))


def without_padding(slots: list[int]) -> list[int]:
    """The slots of a step's tokens before the -1 that pad their buffer; [] where the buffer was never padded, so that their end
    is not known."""
    if not slots or slots[-1] != -1:
        return []
    while slots and slots[-1] == -1:
        slots.pop()
    return slots


def length(rt: Runtime, obj: Object) -> int:
    """How many numbers a tensor (on a device too), a list, a tuple or an array.array holds."""
    return (read_tensor(rt, obj.address).numel or 0) if is_tensor(obj) else obj.len()


def tokens(rt: Runtime, held: Iterable[tuple[str, Object | None]]) -> dict[str, list[int] | None]:
    """`{name: token ids}` of a request, at most `MAX_TOKENS_SHOWN` of each; None for those that cannot be read."""
    found: dict[str, list[int] | None] = {}
    for name, obj in held:
        try:
            found[name] = None if obj is None else numbers_until(rt, obj, MAX_TOKENS_SHOWN)
        except GdbextError as e:
            log.passed_over(e)
            found[name] = None
    return found
