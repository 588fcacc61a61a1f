"""Who waits for whom, as a graph: edges, cycles, and the end of a chain. Pure: knows no process.

A node is any hashable value, here (process name, tid).
"""


class Edge:
    """`waiter` waits for `lock` (text) of `kind`: "GIL", "mutex", "condition", "Lock", "RLock", "Queue", …

    `owner`: the node that has it, None where that is not known; `how`: how the owner is known ("" for what the lock itself says,
    "with", "between acquire and release"); `candidates`: nodes one of which may have it, or may wake the waiter; `note`: one
    sentence more; `orphan`: the owner does not exist in this process; `address` of the lock (0: none); `shared`: (kind, key) of one that other
    processes may have (`ipc_locks.resolve`), `outside`: [process not looked at that has it]; `polls`: the waiter asks again and again."""

    __slots__ = (
        "waiter",
        "lock",
        "kind",
        "owner",
        "how",
        "candidates",
        "note",
        "orphan",
        "address",
        "where",
        "shared",
        "outside",
        "polls",
    )

    def __init__(self, waiter, lock, kind, owner=None, how="", candidates=(), note="", orphan=False, address=0, where=""):
        self.waiter, self.lock, self.kind, self.owner, self.how, self.candidates = (
            waiter,
            lock,
            kind,
            owner,
            how,
            list(candidates),
        )
        self.note, self.orphan, self.address, self.where = note, orphan, address, where
        self.shared, self.outside, self.polls = None, [], False

    def __repr__(self):
        return f"Edge({self.waiter} -> {self.owner}: {self.lock})"


def cycles(edges):
    """`[[Edge]]`: every cycle once, each as the edges round it, beginning with its smallest node. One owner per edge, so from a node
    with several edges each is followed."""
    out = {}
    for edge in edges:
        if edge.owner is not None:
            out.setdefault(edge.waiter, []).append(edge)
    found, done = [], set()
    for start in sorted(out, key=repr):
        path, on_path, todo = [], {start: 0}, [(start, 0)]
        while todo:  # depth first, by hand: a chain may be longer than Python's own stack
            node, index = todo.pop()
            following = out.get(node, ())
            if index >= len(following) or node in done:
                done.add(node)
                on_path.pop(node, None)
                if path:
                    path.pop()
                continue
            todo.append((node, index + 1))
            edge = following[index]
            if edge.owner in on_path:
                found.append(_rotated(path[on_path[edge.owner] :] + [edge]))
            elif edge.owner not in done:
                path.append(edge)
                on_path[edge.owner] = len(path)
                todo.append((edge.owner, 0))
    unique = {}
    for cycle in found:
        unique.setdefault(tuple((e.waiter, e.address, e.lock) for e in cycle), cycle)
    return list(unique.values())


def _rotated(cycle):
    first = min(range(len(cycle)), key=lambda i: repr(cycle[i].waiter))
    return cycle[first:] + cycle[:first]


def root(edges, node):
    """Where the chain of owners from `node` ends: (the last node, `[Edge]` on the way). A cycle ends it too."""
    by_waiter, way, seen = {}, [], set()
    for edge in edges:
        by_waiter.setdefault(edge.waiter, edge)
    while node in by_waiter and node not in seen:
        seen.add(node)
        edge = by_waiter[node]
        way.append(edge)
        if edge.owner is None:
            break
        node = edge.owner
    return node, way


def sentence(cycle, name):
    """A cycle as a sentence; `name(node)` gives a node's name."""
    parts = [f"{name(e.waiter)} waits for {e.lock}, which {name(e.owner)} holds" for e in cycle]
    if len(cycle) == 1:
        return f"{name(cycle[0].waiter)} waits for {cycle[0].lock}, which it holds itself."
    return "; ".join(parts) + ": none of them can go on."
