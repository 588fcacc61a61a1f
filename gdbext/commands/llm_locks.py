"""llm-locks: who waits for whom."""

from ..lazy import lazy_module
from ..render.jsonline import Address
from ..render.text import escape
from ..session import process_selection as several
from ..session.command import Answer, Command
from .llm_stacks import closing, place, read_all

between, looks, locks, waits = (
    lazy_module("stacks.between"),
    lazy_module("stacks.looks"),
    lazy_module("stacks.locks"),
    lazy_module("stacks.waits"),
)


class LlmLocks(Command):
    """Show which thread waits for which lock and who has it: the GIL, pthread mutexes, Python's locks and queues.

    Python Lock, RLock, Condition, Semaphore, Event, Barrier, Queue, Thread.join, futures, the import lock and logging's locks are known
    by the frames and the address that a thread waits on. A plain Lock keeps no owner: it is found by the frame that stands inside
    its `with`, or between its acquire and its release; else the threads that can reach it are listed. A cycle is said as a
    sentence, and so is an owner that does not exist in this process, as after a fork.

      (gdb) llm-locks TP0
      TP0 4242 MainThread  waits for the Lock self.cache_lock in Cache.put (cache.py:88)
        held by TP0 4260 evictor, inside its with in Cache.evict (cache.py:120)
      TP0 4260 evictor  waits for the RLock self.pool_lock in Pool.free (pool.py:31)
        held by TP0 4242 MainThread
      CYCLE: TP0 4242 MainThread waits for …; TP0 4260 evictor waits for …: none of them can go on.

    A lock between processes (a mutex in shared memory, multiprocessing's, a locked file) has an owner here where its process is among those
    looked at. WHAT as for llm-stacks; every process is copied in a pause of milliseconds and runs on."""

    name = "llm-locks"
    group = "hang"
    operand = "[WHAT...]"
    completes = "what"
    reads = False
    alone = True

    def run(self, session, args):
        with looks.taken(several.subjects(session, args.rest), several.held(session)) as taken:
            views, partial, failed = read_all(taken)
            edges = []
            for view in views:
                found, why = locks.find(view)
                edges += found
                partial += why
            between.resolve(views, edges)
        nodes = nodes_of(views)
        round_ = waits.cycles(edges)
        data = {
            "edges": [edge_data(e, nodes) for e in edges],
            "cycles": [
                {"edges": [edge_data(e, nodes) for e in c], "sentence": waits.sentence(c, lambda n: node_text(n, nodes))}
                for c in round_
            ],
            "ranks_read": len(views),
            "ranks_total": len(taken),
            "pauses": looks.pauses(taken),
            "failed": failed,
        }
        names = {view.pid: view.name for view in views}

        def text(style):
            lines = edge_lines(edges, nodes, style)
            lines += [style.bad("CYCLE: ") + c["sentence"] for c in data["cycles"]]
            return "\n".join((lines or ["no thread waits for a lock"]) + closing(data, names, style))

        return Answer(data, text, partial)


def nodes_of(views):
    """{node: (ProcessView, ThreadView)}"""
    return {(view.name, th.tid): (view, th) for view in views for th in view.threads}


def node_text(node, nodes):
    """`TP0 4242 MainThread`"""
    view, thread = nodes.get(node, (None, None))
    name = escape(thread.name) if thread is not None else "?"
    return f"{escape(node[0])} {node[1]} {name}" if node[0] != str(node[1]) else f"{node[1]} {name}"


def edge_data(edge, nodes):
    """The contract's edge, with what is known of the owner."""

    def at(node):
        view, thread = nodes[node]
        return place(view, thread)

    return {
        "waiter": at(edge.waiter),
        "lock": escape(edge.lock),
        "owner": at(edge.owner) if edge.owner in nodes else None,
        "kind": edge.kind,
        "address": Address(edge.address) if edge.address else None,
        "how": edge.how,
        "where": escape(edge.where),
        "note": escape(edge.note),
        "candidates": [at(c) for c in edge.candidates],
        "orphan": edge.orphan,
    }


def edge_lines(edges, nodes, style):
    lines = []
    for e in edges:
        lines.append(
            f"{style.name(node_text(e.waiter, nodes))}  waits for {escape(e.lock)}"
            + (f" in {escape(e.where)}" if e.where else "")
        )
        if e.owner is not None:
            how = {"with": ", inside its with: ", "between acquire and release": ", by its source: "}.get(e.how, "")
            lines.append(
                f"  held by {style.name(node_text(e.owner, nodes))}{how}{escape(e.note)}"
                if e.kind != "Thread"
                else f"  that is {node_text(e.owner, nodes)}"
            )
        elif e.note:
            lines.append("  " + (style.bad(escape(e.note)) if e.orphan else escape(e.note)))
        if e.candidates:
            word = "can reach it" if e.kind in ("Queue", "Event", "Condition", "Barrier", "Future") else "one of"
            some = ", ".join(node_text(c, nodes) for c in e.candidates[:6])
            lines.append(f"  {word}: {some}" + (", …" if len(e.candidates) > 6 else ""))
    return lines
