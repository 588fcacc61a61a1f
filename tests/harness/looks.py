"""What an engine's own reader says of one process's requests, without its siblings."""

from gdbext.engines.registry import SPECS


class Role:
    """What a reader asks of a `Rank`."""

    def __init__(self, label, pid, role):
        self.label, self.pid, self.role = label, pid, role


def listed(rt, engine):
    """The requests of a process's scheduler, as llm-requests looks at them before it reads what they hold."""
    role = {"vllm": "engine-core", "sglang": "scheduler"}[engine]
    look = SPECS[engine].requests.look(rt, Role("one", rt.target.pid, role))
    assert look.notes == [] and "scheduler" in look.parts
    return [s.request for s in look.sightings if s.request is not None]
