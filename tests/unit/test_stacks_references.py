"""Which agents can reach what: only who is asked about is looked through, and each once."""

from gdbext.stacks.references import Reach, Reachable


class Agent:
    def __init__(self, name, *frames):
        self.name, self.python = name, frames


class Obj:
    def __init__(self, address):
        self.address = address


class Recorded:
    """References that say who was looked through: a frame is {path: address}."""

    def __init__(self):
        self.seen, self.made = [], {}

    def reaches(self, frame):
        self.seen.append(frame)
        key = tuple(frame.items())
        if key not in self.made:
            self.made[key] = Reach([(path, Obj(address)) for path, address in frame.items()])
        return (self.made[key],)


def test_a_process_left_out_is_not_read_until_it_is_asked_about():
    one, two, three = Agent("one", {"x": 1}), Agent("two", {"x": 1, "y": 2}), Agent("three", {"x": 1})
    recorded = Recorded()
    reachable = Reachable(recorded, [one, two, three])
    assert reachable.agents_of(1, lambda agent: agent in (one, two)) == [three]
    assert recorded.seen == [{"x": 1}]
    assert reachable.agents_of(1, lambda agent: agent is three) == [one, two]  # in the index, and left out now
    assert reachable.agents_of(2, lambda agent: False) == [two] and reachable.agents_of(7, lambda agent: False) == []
    assert len(recorded.seen) == 3
