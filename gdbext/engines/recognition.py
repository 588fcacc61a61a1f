"""Reads the memory of a process that identifies it: ranks of process groups, the outermost frames, the environment."""

from __future__ import annotations

from .. import log
from ..errors import GdbextError, NotFoundError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping, Sequence

    from ..cpython.frames import PyFrame
    from ..cpython.objects import Object
    from ..cpython.runtime import Runtime

MAX_RANK = 1 << 20  # a larger one is nonsense out of hostile memory
MAX_NAMES = 1 << 14  # of a module or an environment


def checked_rank(value: object) -> int:
    """An int out of a process as a rank; `GdbextError` for nonsense."""
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value < MAX_RANK:
        raise GdbextError(f"{value!r} is no rank")
    return value


def group_ranks(runtime: Runtime, module: str, names: Mapping[str, str]) -> tuple[dict[str, int], dict[str, int]] | None:
    """`names`: `{global: group}`. -> (ranks, sizes) of the GroupCoordinators that `module` holds, or None without the module.

    vLLM and SGLang share the class (vllm/distributed/parallel_state.py): `.rank` is the global rank, `.rank_in_group` and
    `.world_size` the group's; SGLang took the file over from vLLM.
    """
    scope = runtime.module(module)
    if scope is None:
        return None
    bounded(scope)
    ranks, sizes = {}, {}
    for name, group in names.items():
        try:
            coordinator = scope.item(name)
        except NotFoundError as e:
            log.passed_over(e)
            continue
        if coordinator.type_name == "NoneType":
            continue
        rank = _integer(coordinator, "rank" if group == "world" else "rank_in_group")
        if rank < 0:
            continue  # this process is not in that group
        ranks[group], sizes[group] = rank, _integer(coordinator, "world_size")
        if rank >= sizes[group]:
            raise GdbextError(f"rank {rank} of a group of {sizes[group]} ({name}) is nonsense")
    return ranks, sizes


def bounded(scope: Object) -> Object:
    """`scope`, a dict that is searched name by name; `GdbextError` for one larger than any module's."""
    if scope.len() > MAX_NAMES:
        raise GdbextError(f"a module with {scope.len()} names is nonsense")
    return scope


def _integer(owner: Object, name: str) -> int:
    value = owner.attr(name)
    if not hasattr(value, "integer"):
        raise GdbextError(f"{name} of the {owner.type_name} is no int")
    return checked_rank(value.integer(max_digits=2))


def outer_frame(runtime: Runtime, functions: Sequence[str]) -> PyFrame | None:
    """The outermost frame of any thread whose function's last name part is in `functions`, or None."""
    for thread in runtime.threads()[:256]:
        for frame in reversed(runtime.frames(thread)):
            if frame.function.rpartition(".")[2] in functions:
                return frame
    return None


def frame_local(frame: PyFrame, *names: str) -> Object:
    """The Object at `names[0]` of the frame's locals, or at its attribute `names[1]`, and so on. `GdbextError` when it does not
    exist."""
    value = dict(frame.locals()).get(names[0])
    for name in names[1:]:
        value = value.attr(name) if value is not None and hasattr(value, "attr") else None
    if value is None or not hasattr(value, "attr"):
        raise GdbextError(f"{'.'.join(names)} of {frame.function} is not set")
    return value


def memory_environ(runtime: Runtime, names: Sequence[str]) -> dict[str, str]:
    """`{name: text}` of those variables in `os.environ` as Python holds it (bytes in `_data`), 64 bytes of each."""
    scope = runtime.module("os")
    found: dict[str, str] = {}
    if scope is None:
        return found
    for key, value in bounded(bounded(scope).item("environ").attr("_data")).items():
        try:
            name = key.raw_bytes(64).decode("ascii", "replace")
            if name in names:
                found[name] = value.raw_bytes(64).decode("ascii", "replace")
        except GdbextError as e:
            log.passed_over(e)
            continue
    return found
