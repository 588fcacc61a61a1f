"""KV on its way between SGLang's prefill and decode servers (srt/disaggregation/prefill.py, decode.py, common/conn.py, 0.5.23).

Both ends name a request by its bootstrap room, a number that the router draws."""

from __future__ import annotations

from ... import log
from ...cpython.objects import Object
from ...cpython.runtime import Runtime
from ...errors import GdbextError
from ..objects import at, optional
from ..sightings import BYTES, COMPLETION, HANDSHAKE, PAIRING, Connector, Look, Transfer

STATES = {1: PAIRING, 2: HANDSHAKE, 3: BYTES, 4: COMPLETION}  # base/conn.py, KVPoll: the receiver has reported where to write (2)
QUEUES = {  # the engine's word for where a request is -> (the queue whose manager knows more, whether it sends)
    "bootstrap": ("disagg_prefill_bootstrap_queue", True),
    "inflight": ("disagg_prefill_bootstrap_queue", True),
    "prealloc": ("disagg_decode_prealloc_queue", False),
    "transfer": ("disagg_decode_transfer_queue", False),
}
FIRST = {"bootstrap": PAIRING, "inflight": BYTES, "prealloc": PAIRING, "transfer": ""}  # where no manager has it
MAX_ROOMS = 10_000


def fill(rt: Runtime, found: Look, scheduler: Object) -> None:
    """Fills in each request's KV transfer, and the scheduler's part in it."""
    args = at(scheduler, "server_args")
    role = optional(args, "disaggregation_mode", "string", "") if args is not None else ""
    if args is None or role not in ("prefill", "decode"):
        return
    found.serves = Connector(optional(args, "disaggregation_transfer_backend", "string", ""), role)
    if role == "prefill":
        host, port = optional(args, "host", "string", ""), optional(args, "disaggregation_bootstrap_port")
        found.serves.address = f"{host}:{port}" if host and port else ""
    known: dict[str, dict[int, int]] = {}
    for sighting in found.sightings:
        here = sighting.request.queue if sighting.request is not None else ""
        place = QUEUES.get(here, ("disagg_prefill_bootstrap_queue", True) if role == "prefill" else None)  # it computes the rest
        if place is None or sighting.request is None:
            continue
        queue, sends = place
        if queue not in known:
            known[queue] = _rooms(at(scheduler, f"{queue}.kv_manager"))
        request = rt.object(sighting.request.address)
        room = optional(request, "bootstrap_room")
        if room is None:
            continue
        host, port = optional(request, "bootstrap_host", "string", ""), optional(request, "bootstrap_port")
        address = f"{host}:{port}" if host and port and not sends else ""
        state = STATES.get(known[queue].get(room, -1), FIRST.get(here, ""))
        sighting.transfer = Transfer(("room", str(room)), sends, state, "", address)
        if address:
            sighting.waits_for += f" at {address}"


def _rooms(manager: Object | None) -> dict[int, int]:
    """{room: its state} in a manager; {} where it cannot be read just now."""
    table = at(manager, "request_status") if manager is not None else None
    found: dict[int, int] = {}
    try:
        for room, state in table.items(MAX_ROOMS) if table is not None else ():
            found[room.integer()] = state.integer()
    except GdbextError as e:
        log.passed_over(e)
    return found
