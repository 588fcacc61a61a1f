"""What is known of a primitive of waiting: one row of `table`.

Readers know states (Python frames, a suspended coroutine, a loop that only asks, a futex, a system call). They look up here which
library's functions, attributes and calls are which.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, NamedTuple


class Way(NamedTuple):
    """One way to wait at a primitive.

    * `name`: the function in which its waiters stand, by the last part of its name; `also`: others that wait alike
    * `ready`: the state that ends the wait: "items", "room", "set", "value", "done", "pending", "free"; '' for none that is kept
    * `ends`: calls that end it; none where code that names no call of it may do so too
    * `asks`: {call that only asks for it: how (`cpython.poll_calls.READERS`)}
    * `want`: "an item of"; '' for the object itself
    * `call`, `give`: an example of the wait, and of the call that ends it, from which tests make programs; `first`: a call that
      is made before, so that there is something to wait for
    """

    name: str
    ready: str = ""
    ends: tuple[str, ...] = ()
    asks: Mapping[str, str] = {}
    want: str = ""
    also: tuple[str, ...] = ()
    call: str = ""
    give: str = ""
    first: str = ""


@dataclass(frozen=True)
class Primitive:
    """One kind of object at which threads or tasks wait.

    * `kind`: of its edges, by which rules know how it behaves ("Event", "Condition", "Future", "Lock", "Job" …, with a library's
      name before it or not): what behaves otherwise has a word of its own. `classes`: full names of its classes
    * `file`: the end of the path of the library's file in which its waiters stand
    * `state`: {word of `ready`, or "bound": the attributes that lead to it}
    * `shows`: its state in words, attributes in braces
    * `object`: the attribute that leads from a waiter's `self` to the object, '' where it is that
    * `built`: its waiters stand in another primitive, inside their own function; else they may be at work there
    * `attributes`: {attribute that only tells the state: how}
    * `within`: only a thread or task of its own process ends its waits
    * `lock`: it has owners; `held`: the task in its `with` has it
    * `once`: what it gives is given once; `does`: one word for its waiters
    * `tasks`: tasks of an event loop wait at it
    * `owner`: the attribute that is its owner, a task
    * `permits`: the attributes that lead to what it has lent: the borrowers themselves, or what they have at hand;
      `permit`: (class of what it lends, the attribute of that which leads back to it)
    * `waiters`: the attributes that lead to the futures of its waiters, where no frame of it shows them
    * `name`: the attribute by which objects of several processes are one and the same lock, which a server keeps
    * `made`: an example, from which tests make programs; `needs`: the module that is to be imported for it
    """

    kind: str
    classes: tuple[str, ...]
    file: str = ""
    ways: tuple[Way, ...] = ()
    state: Mapping[str, str] = field(default_factory=dict)
    shows: str = ""
    object: str = ""
    built: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)
    within: bool = True
    lock: bool = False
    held: bool = False
    once: bool = False
    does: str = "event"
    tasks: bool = False
    owner: str = ""
    permits: str = ""
    permit: tuple[str, str] = ("", "")
    waiters: str = ""
    name: str = ""
    made: str = ""
    needs: str = ""

    @property
    def is_async(self) -> bool:
        """Whether tasks wait at it."""
        return self.tasks or self.kind.startswith("asyncio.") or "/asyncio/" in self.file

    @property
    def lends(self) -> bool:
        """Whether it has a number of permits or connections, which it lends."""
        return bool(self.owner or self.permits or self.permit[0])

    def way_of(self, path: str, function: str) -> Way | None:
        """The way in which a frame of `function` in the file at `path` waits; None where it does not wait."""
        if not self.file or not path.endswith(self.file):
            return None
        name = function.rpartition(".")[2]
        return next((way for way in self.ways if name == way.name or name in way.also), None)


class Native(NamedTuple):
    """A wait in native code. `function`: a pattern of the C function in which its waiters stand; `kind`: of its edges; `what`
    they wait for, with the address in braces where they wait on one; `note`: who ends it."""

    function: str
    kind: str
    what: str
    note: str


class Guard(NamedTuple):
    """A lock inside a primitive: of the objects of the library's `file` it is the attribute `lock`, and whoever is in one of the
    `functions` keeps it there."""

    file: str
    lock: str
    functions: tuple[str, ...]


class Pool(NamedTuple):
    """A library's pool of workers.

    * `file`: the end of its file's path
    * `works`: functions in which workers take and do their work, resting while there is none
    * `serves`: functions of the threads that hand work out and take results in
    * `manages`: its workers are processes, and a thread in `run` has `pending_work_items` and `processes`
    * `runs`: its workers are threads, and this function of a job runs it; the job's `future` is that attribute, the workers take
      jobs from their variable `queue`
    """

    file: str
    works: tuple[str, ...]
    serves: tuple[str, ...] = ()
    manages: bool = False
    runs: str = ""
    queue: str = ""
    future: str = ""


class Taking(NamedTuple):
    """A call that takes what must be free, or fails: code tries it again and again.

    * `names`: of the call and its arguments, all of which the code has
    * `how`: what it finds in its way: "made", a file that is there; "locked", a file that is locked; "database", one of SQLite's
    * `error`: (class of its exception, errno or a part of the message), where the exception says it
    * `mode`: what one of the code's constants begins with
    """

    how: str
    names: tuple[str, ...]
    error: tuple[str, int | str] = ("", 0)
    mode: str = ""
