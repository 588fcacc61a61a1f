"""Data-parallel ranks of vLLM that go in step (mixtures of experts), and the ranks whose start a server waits for.

While one rank has a request, all others run dummy batches; every few steps they meet in an all-reduce. A *wave* is the time
between two rests of all of them. The coordinator tells the ranks when one begins. Sources: v1/engine/core.py (DPEngineCoreProc),
v1/engine/coordinator.py (process_input_socket), v1/engine/core_client.py, v1/engine/utils.py (wait_for_engine_startup)."""

from __future__ import annotations

from ... import log
from ...cpython.frames import PyFrame
from ...cpython.objects import Object
from ...cpython.runtime import Runtime
from ...errors import GdbextError
from ...torch import gloo_peers
from ..objects import at, optional, settled_frames
from ..recognition import MAX_RANK
from ..sightings import InStep, Start

COORDINATES, STARTS = "process_input_socket", "wait_for_engine_startup"
NEW, CONNECTED = 1, 2  # CoreEngineState: it has not reported; it has, and is not ready
MAX_ENGINES = 4096


def of_core(core: Object) -> InStep | None:
    """The numbers of an engine core that goes in step with others; None of one that does not."""
    wave, size = optional(core, "current_wave"), optional(core, "dp_size")
    rank = optional(core, "dp_rank")
    if wave is None or size is None or rank is None or not 0 <= rank < size <= MAX_RANK:
        return None
    runs = bool(optional(core, "engines_running", "boolean", False))
    return InStep(rank, size, wave, optional(core, "step_counter"), runs, _hosts(core))


def _hosts(core: Object) -> dict[int, str]:
    """{rank: the address of its machine} of the group in which the cores meet."""
    group = at(core, "dp_group")
    try:
        return gloo_peers.of_group(core.rt, group) if group is not None and not group.is_none() else {}
    except GdbextError as e:
        log.passed_over(e)
        return {}


def of_coordinator(rt: Runtime) -> InStep | None:
    """The coordinator's numbers; None where its frame is not there, or it only balances load between independent ranks."""
    frame = _frame(rt, COORDINATES)
    if frame is None:
        return None
    own = dict(frame.locals())
    me, wave, runs = (own.get(name) for name in ("self", "current_wave", "engines_running"))
    if me is None or wave is None or runs is None or not optional(me, "enable_wave_coordination", "boolean", True):
        return None
    engines = at(me, "engines")
    return InStep(None, engines.len() if engines is not None else 0, wave.integer(), None, runs.boolean())


def awaited(rt: Runtime) -> Start | None:
    """The engine cores whose start a server waits for; None where it waits for none."""
    frame = _frame(rt, STARTS)
    engines = dict(frame.locals()).get("core_engines") if frame is not None else None
    if engines is None or not engines.isa("list", "tuple"):
        return None
    members = engines.elements(MAX_ENGINES)
    found = Start(len(members))
    for number, one in enumerate(members):
        identity, state = at(one, "identity"), at(one, "state")
        rank = int.from_bytes(identity.raw_bytes(8), "little") if identity is not None and identity.isa("bytes") else number
        value = optional(state, "_value_") if state is not None else None
        if value == CONNECTED:
            found.starting.append(rank)
        elif value == NEW:
            (found.elsewhere if optional(one, "local", "boolean") is False else found.here).append(rank)
    return found if found.here or found.elsewhere or found.starting else None


def _frame(rt: Runtime, function: str) -> PyFrame | None:
    """The outermost frame of a function; None where there is none, or it changes while it is read."""
    try:
        frames = (frame for each in settled_frames(rt) for frame in reversed(each))
        return next((frame for frame in frames if frame.function.rpartition(".")[2] == function), None)
    except GdbextError as e:
        log.passed_over(e)
        return None
