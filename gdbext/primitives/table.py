"""The primitives of waiting, a row each. A new library is a row.

Source: Lib/threading.py, queue.py, concurrent/futures/_base.py, importlib/_bootstrap.py, multiprocessing/, subprocess.py,
asyncio/locks.py, queues.py of each minor; Modules/_queuemodule.c; redis/connection.py 8.1; janus/__init__.py 2.0;
loky/process_executor.py 3.7.
"""

from __future__ import annotations

import errno
from typing import Iterable

from .model import Guard, Native, Pool, Primitive, Taking, Way

_GETS = {"empty": "not", "qsize": "count", "get_nowait": "nowait", "get": "block"}
_PUTS = {"full": "not", "put_nowait": "nowait", "put": "block1"}


def _queue(
    gets: dict[str, str], puts: dict[str, str], give: str = "put_nowait(1)", take: str = "get_nowait()"
) -> tuple[Way, ...]:
    return (
        Way("get", "items", ("put", "put_nowait"), gets, "an item of", call="get()", give=give),
        Way("put", "room", ("get", "get_nowait"), puts, "room in", call="put(1)", give=take, first=give),
        Way("join", "", ("task_done",), {}, "the end of all work of", call="join()", give="task_done()", first=give),
    )


_QUEUE = _queue(_GETS, _PUTS)
_ASYNC_QUEUE = _queue({"empty": "not", "qsize": "count", "get_nowait": "nowait", "get": "awaits"},
                      {"full": "not", "put_nowait": "nowait"})  # fmt: skip
_PROXY = _queue(_GETS, _PUTS)
_EVENT, _NOTIFIES = {"is_set": "is", "isSet": "is", "wait": "is"}, ("notify", "notify_all")
_LOCK = {"acquire": "blocking", "locked": "not"}
_ENTERED = ("__aenter__",)
_DONE = {"done": "is", "result": "timeout", "exception": "timeout"}

ROWS: tuple[Primitive, ...] = (
    Primitive("Queue", ("queue.Queue",), "/queue.py", _QUEUE, {"items": "queue", "bound": "maxsize"}, once=True, does="queue",
              made="queue.Queue(1)", needs="queue"),
    Primitive("Queue", ("_queue.SimpleQueue",), "", (Way("get", "items", ("put", "put_nowait"), {
              "get": "block", "get_nowait": "nowait", "empty": "not", "qsize": "count"}, "an item of", give="put(1)"),),
              {"items": "(ring)"},
              once=True, does="queue", made="queue.SimpleQueue()", needs="queue"),
    Primitive("Event", ("threading.Event",), "/threading.py", (
              Way("wait", "set", ("set",), _EVENT, call="wait()", give="set()"),),
              {"set": "_flag"}, made="threading.Event()", needs="threading"),
    Primitive("Condition", ("threading.Condition",), "/threading.py", (Way("wait", "", _NOTIFIES, {"wait": "pause"}),)),
    Primitive("Barrier", ("threading.Barrier",), "/threading.py", (
              Way("wait", "", ("wait", "abort", "reset"), {"n_waiting": ""}, call="wait()", give="wait()"),),
              shows="{_count} of {_parties} have come", made="threading.Barrier(2)", needs="threading"),
    Primitive("Semaphore", ("threading.Semaphore",), "/threading.py", (
              Way("acquire", "value", asks={"acquire": "blocking"}, call="acquire()", give="release()"),),
              {"value": "_value"}, "value {_value}", lock=True, held=True, made="threading.Semaphore(0)", needs="threading"),
    Primitive("Thread", ("threading.Thread",), "/threading.py", (
              Way("join", asks={"is_alive": "thread", "join": "pause"}, also=("_wait_for_tstate_lock",)),), does="join"),
    Primitive("import", ("_frozen_importlib._ModuleLock", "importlib._bootstrap._ModuleLock"), "importlib._bootstrap>", (
              Way("acquire"),), within=False, lock=True),
    Primitive("Future", ("concurrent.futures._base.Future",), "/_base.py", (
              Way("result", "done", asks=_DONE, also=("exception",), call="result()", give="set_result(1)"),),
              {"done": "_state"}, "{_state}", once=True, made="concurrent.futures.Future()", needs="concurrent.futures"),
    Primitive("Lock", ("_thread.lock",), "", (Way("acquire", "free", asks=_LOCK),), {"free": "(word)"}, lock=True),
    Primitive("RLock", ("_thread.RLock",), "", (Way("acquire", "free", asks=_LOCK),), {"free": "(word)"}, lock=True),
    # asyncio
    Primitive("asyncio.Queue", ("asyncio.queues.Queue",), "/asyncio/queues.py", _ASYNC_QUEUE,
              {"items": "_queue", "bound": "_maxsize"}, does="queue", made="asyncio.Queue(1)", needs="asyncio"),
    Primitive("asyncio.Event", ("asyncio.locks.Event",), "/asyncio/locks.py", (
              Way("wait", "set", ("set",), {"is_set": "is", "wait": "awaits"}, call="wait()", give="set()"),), {"set": "_value"},
              made="asyncio.Event()", needs="asyncio"),
    Primitive("asyncio.Condition", ("asyncio.locks.Condition",), "/asyncio/locks.py", (
              Way("wait", "", _NOTIFIES, also=("acquire", *_ENTERED)),), held=True),
    Primitive("asyncio.Barrier", ("asyncio.locks.Barrier",), "/asyncio/locks.py", (
              Way("wait", "", ("wait", "abort", "reset"), also=_ENTERED, call="wait()", give="reset()"),),
              shows="{_count} of {_parties} have come", made="asyncio.Barrier(2)", needs="asyncio"),
    Primitive("asyncio.Semaphore", ("asyncio.locks.Semaphore",), "/asyncio/locks.py", (
              Way("acquire", "value", also=_ENTERED, call="acquire()", give="release()"),), {"value": "_value"},
              "value {_value}", lock=True, held=True, made="asyncio.Semaphore(0)", needs="asyncio"),
    Primitive("asyncio.Lock", ("asyncio.locks.Lock",), "/asyncio/locks.py", (
              Way("acquire", "unlocked", also=_ENTERED),), {"unlocked": "_locked"}, lock=True, held=True),
    Primitive("asyncio.Future", ("_asyncio.Future", "_asyncio.Task", "asyncio.futures.Future", "asyncio.tasks.Task"), "", (
              Way("done", "pending", asks={"done": "is"}, give="set_result(1)"),),
              made="asyncio.get_running_loop().create_future()", needs="asyncio"),
    # processes, and what they share
    Primitive("Process", ("multiprocessing.process.BaseProcess",), "/multiprocessing/process.py", (
              Way("join", asks={"is_alive": "child", "join": "pause"}),),
              attributes={"exitcode": "status"}, within=False, does="join"),
    Primitive("Process", ("subprocess.Popen",), "/subprocess.py", (
              Way("wait", asks={"poll": "status", "wait": "wait_child"}, also=("_wait",)),),
              attributes={"returncode": "status"}, within=False, does="join"),
    Primitive("Process", ("asyncio.subprocess.Process",), "/asyncio/subprocess.py", (Way("wait"),), within=False, does="join"),
    Primitive("Job", ("multiprocessing.pool.ApplyResult", "multiprocessing.pool.IMapIterator"), "/multiprocessing/pool.py", (
              Way("get", also=("wait", "next")),), within=False),
    Primitive("SemLock", ("_multiprocessing.SemLock",), "", (Way("acquire", asks={"acquire": "semaphore"}),), within=False),
    Primitive("SharedBarrier", ("multiprocessing.synchronize.Barrier",), within=False),
    Primitive("SharedEvent", ("multiprocessing.synchronize.Event",), "", (Way("wait", asks={"wait": "shared"}),), within=False),
    Primitive("SharedQueue", ("multiprocessing.queues.Queue",), "", (Way("get", asks={"get": "reader"}),), within=False),
    Primitive("Value", ("multiprocessing.sharedctypes.SynchronizedBase",), attributes={"value": "shared"}, within=False),
    Primitive("Connection", ("multiprocessing.connection._ConnectionBase",), "", (
              Way("recv", asks={"poll": "connection"}),), within=False),
    # files
    Primitive("Selector", ("selectors._BaseSelectorImpl",), "", (Way("select", asks={"select": "selector"}),), within=False),
    Primitive("Selector", ("select.poll",), "", (Way("poll", asks={"poll": "poll"}),), within=False),
    Primitive("Selector", ("select.epoll",), "", (Way("poll", asks={"poll": "epoll"}),), within=False),
    Primitive("Socket", ("_socket.socket",), "", (Way("recv", asks=dict.fromkeys(
              ("recv", "recv_into", "recvfrom", "recvfrom_into", "recvmsg", "_accept"), "socket")),), within=False),
    Primitive("FileBaton", ("torch.utils.file_baton.FileBaton",), "/torch/utils/file_baton.py", (Way("wait"),),
              {"path": "lock_file_path"}, within=False),
    # other libraries
    Primitive("Pool", ("redis.connection.BlockingConnectionPool",), "/redis/connection.py", (
              Way("get_connection", "items", ("release", "reset", "disconnect"), {}, "a connection of",
                  call="get_connection()", give="pool.put_nowait(None)", first="pool.get_nowait()"),),
              {"items": "pool.queue", "bound": "max_connections"}, "{items} of {bound} are free", built=True, does="queue",
              permits="_connections",
              made="redis.BlockingConnectionPool(max_connections=1, timeout=None, connection_class=type('NoServer', "
                   "(redis.Connection,), {'connect': lambda self: None, 'can_read': lambda self: False}))", needs="redis"),
    Primitive("Lock", ("redis.lock.Lock",), "/redis/lock.py", (Way("acquire"),), name="name", within=False, lock=True),
    Primitive("Lock", ("redis.asyncio.lock.Lock",), "/redis/asyncio/lock.py", (Way("acquire"),), name="name", within=False,
              lock=True, tasks=True),
    Primitive("Limiter", ("anyio._backends._asyncio.CapacityLimiter",), "/anyio/_backends/_asyncio.py", (
              Way("acquire_on_behalf_of", want="a token of"),), {"bound": "_total_tokens"}, lock=True, built=True, tasks=True,
              permits="_borrowers"),
    Primitive("Limiter", ("anyio._backends._asyncio.Lock",), "/anyio/_backends/_asyncio.py", (Way("acquire"),), lock=True,
              tasks=True, owner="_owner_task"),
    Primitive("Semaphore", ("anyio._backends._asyncio.Semaphore",), "/anyio/_backends/_asyncio.py", (Way("acquire"),),
              {"value": "_value"}, "value {_value}", lock=True, held=True, tasks=True),
    Primitive("Limiter", ("httpcore.AsyncConnectionPool",), "/httpcore/_async/connection_pool.py", (
              Way("handle_async_request", want="a connection of", also=("wait_for_connection",)),),
              {"bound": "_max_connections"}, lock=True, built=True, tasks=True,
              permit=("httpcore._async.connection_pool.PoolByteStream", "_pool")),
    Primitive("Limiter", ("httpcore.ConnectionPool",), "/httpcore/_sync/connection_pool.py", (
              Way("handle_request", want="a connection of", also=("wait_for_connection",)),), {"bound": "_max_connections"},
              lock=True, built=True, permit=("httpcore._sync.connection_pool.PoolByteStream", "_pool")),
    Primitive("Limiter", ("aiohttp.connector.BaseConnector",), "/aiohttp/connector.py", (
              Way("_wait_for_available_connection", want="a connection of"),), {"bound": "_limit"}, lock=True, tasks=True,
              permit=("aiohttp.connector.Connection", "_connector")),
    Primitive("Channel", ("anyio.streams.memory.MemoryObjectReceiveStream",), "/anyio/streams/memory.py", (
              Way("receive", want="an item of", ends=("send", "send_nowait")),), object="_state", built=True, tasks=True,
              once=True),
    Primitive("Channel", ("anyio.streams.memory.MemoryObjectSendStream",), "/anyio/streams/memory.py", (
              Way("send", want="room in", ends=("receive", "receive_nowait")),), object="_state", built=True, tasks=True,
              once=True),
    # tornado, whose waiters await a bare future
    Primitive("Lock", ("tornado.locks.Lock",), "/tornado/locks.py", (Way("acquire"),), lock=True, held=True, tasks=True,
              waiters="_block._waiters"),
    Primitive("Semaphore", ("tornado.locks.Semaphore",), "/tornado/locks.py", (Way("acquire"),), {"value": "_value"},
              "value {_value}", lock=True, held=True, tasks=True, waiters="_waiters"),
    Primitive("Condition", ("tornado.locks.Condition",), "/tornado/locks.py", (Way("wait", "", _NOTIFIES),), tasks=True,
              waiters="_waiters"),
    Primitive("Event", ("tornado.locks.Event",), "/tornado/locks.py", (Way("wait", "set", ("set",)),), {"set": "_value"},
              tasks=True, waiters="_waiters"),
    Primitive("Queue", ("tornado.queues.Queue",), "/tornado/queues.py", (
              Way("get", "items", ("put", "put_nowait"), {}, "an item of"),), {"items": "_queue", "bound": "_maxsize"},
              does="queue", tasks=True, waiters="_getters"),
    # trio; names of its classes as it shows them and as it defines them
    Primitive("Event", ("trio.Event", "trio._sync.Event"), "/trio/_sync.py", (Way("wait", "set", ("set",)),), {"set": "_flag"},
              tasks=True),
    Primitive("Condition", ("trio.Condition", "trio._sync.Condition"), "/trio/_sync.py", (Way("wait", "", _NOTIFIES),),
              tasks=True),
    Primitive("Semaphore", ("trio.Semaphore", "trio._sync.Semaphore"), "/trio/_sync.py", (Way("acquire", "value"),),
              {"value": "_value"}, "value {_value}", lock=True, held=True, tasks=True),
    Primitive("Limiter", ("trio._sync._LockImpl",), "/trio/_sync.py", (Way("acquire"),), lock=True, tasks=True, owner="_owner"),
    Primitive("Limiter", ("trio.CapacityLimiter", "trio._sync.CapacityLimiter"), "/trio/_sync.py", (
              Way("acquire_on_behalf_of", want="a token of"),), {"bound": "_total_tokens"}, lock=True, tasks=True,
              permits="_borrowers"),
    Primitive("Channel", ("trio.MemoryReceiveChannel", "trio._channel.MemoryReceiveChannel"), "/trio/_channel.py", (
              Way("receive", want="an item of", ends=("send", "send_nowait")),), object="_state", tasks=True,
              once=True),
    Primitive("Channel", ("trio.MemorySendChannel", "trio._channel.MemorySendChannel"), "/trio/_channel.py", (
              Way("send", want="room in", ends=("receive", "receive_nowait")),), object="_state", tasks=True,
              once=True),
    Primitive("Queue", ("sqlalchemy.util.queue.Queue",), "/sqlalchemy/util/queue.py", _QUEUE[:2],
              {"items": "queue", "bound": "maxsize"}, once=True, does="queue"),
    Primitive("Limiter", ("sqlalchemy.pool.impl.QueuePool",), "/sqlalchemy/pool/impl.py", (
              Way("_do_get", want="a connection of"),), {"bound": "_pool.maxsize+_max_overflow"}, lock=True, built=True,
              permit=("sqlalchemy.pool.base._ConnectionFairy", "_pool")),
    Primitive("Limiter", ("psycopg_pool.pool.ConnectionPool",), "/psycopg_pool/pool.py", (
              Way("getconn", want="a connection of", also=("wait", "_getconn_with_check_loop", "_getconn_unchecked")),),
              {"bound": "_max_size"}, lock=True, built=True, permit=("psycopg.BaseConnection", "_pool")),
    Primitive("Limiter", ("asyncpg.pool.Pool",), "/asyncpg/pool.py", (
              Way("_acquire_impl", want="a connection of", also=("_acquire",)),), {"bound": "_maxsize"}, lock=True,
              built=True, tasks=True, permit=("asyncpg.pool.PoolConnectionHolder", "_pool")),
    # Twisted, whose coroutines and generators wait for a Deferred
    Primitive("Lock", ("twisted.internet.defer.DeferredLock",), "/twisted/internet/defer.py", (Way("acquire"),), lock=True,
              held=True, tasks=True, waiters="waiting"),
    Primitive("Semaphore", ("twisted.internet.defer.DeferredSemaphore",), "/twisted/internet/defer.py", (Way("acquire"),),
              {"value": "tokens"}, "value {tokens}", lock=True, held=True, tasks=True, waiters="waiting"),
    Primitive("Queue", ("twisted.internet.defer.DeferredQueue",), "/twisted/internet/defer.py", (
              Way("get", "items", ("put",), {}, "an item of"),), {"items": "pending", "bound": "size"}, does="queue", tasks=True,
              waiters="waiting"),
    Primitive("Queue", ("janus._SyncQueueProxy",), "/janus/__init__.py", _PROXY, {"items": "_queue", "bound": "_maxsize"},
              object="_parent", built=True, once=True, does="queue", made="janus.Queue(1).sync_q", needs="janus"),
    Primitive("asyncio.Queue", ("janus._AsyncQueueProxy",), "/janus/__init__.py", _ASYNC_QUEUE,
              {"items": "_queue", "bound": "_maxsize"}, object="_parent", built=True, does="queue",
              made="janus.Queue(1).async_q", needs="janus"),
)  # fmt: skip

_OPEN = "any process that has it open may end that"
NATIVE = (
    Native(r"_*pthread_barrier_wait", "barrier", "the others at the barrier at {:#x}", "whoever has not come to it ends that"),
    Native(r"_*pthread_once(_slow)?$", "once", "the initializer of the pthread_once at {:#x}", "it notes no owner"),
    Native(r"_*cxa_guard_acquire", "guard", "the initializer of the C++ static whose guard is at {:#x}", "it notes no owner"),
    Native(r"_*(sem_wait|new_sem_wait)", "semaphore", "the POSIX semaphore at {:#x}", "whoever posts it ends that"),
    Native(r"(__)?sem(timed)?op$", "native", "a System V semaphore", _OPEN),
    Native(r"(__)?msg(rcv|snd)$", "native", "a System V message queue", _OPEN),
    Native(r"(__)?mq_(timed)?(receive|send)", "native", "a POSIX message queue", _OPEN),
)

# Source: open(2), mkdir(2), link(2), symlink(2), flock(2), fcntl(2); SQLite's SQLITE_BUSY and SQLITE_LOCKED
_EXISTS, _BUSY = ("FileExistsError", errno.EEXIST), ("BlockingIOError", errno.EAGAIN)
TAKINGS = (
    Taking("made", ("O_EXCL",), _EXISTS),
    Taking("made", ("mkdir",), _EXISTS),
    Taking("made", ("link",), _EXISTS),
    Taking("made", ("symlink",), _EXISTS),
    Taking("made", ("open",), _EXISTS, "x"),
    Taking("locked", ("flock", "LOCK_NB"), _BUSY),
    Taking("locked", ("lockf", "LOCK_NB"), _BUSY),
    Taking("database", ("execute",), ("sqlite3.OperationalError", "locked")),
)
BREAKS = ("kill", "pid_exists", "getmtime", "getctime", "st_mtime", "st_ctime", "psutil")  # code that may free what is old

POOLS = (
    Pool("/concurrent/futures/thread.py", ("_worker",), runs="run", queue="work_queue", future="future"),
    Pool("/concurrent/futures/process.py", ("_process_worker",), ("run",), manages=True),
    Pool("/loky/process_executor.py", ("_process_worker",), ("run",), manages=True),
    Pool("/multiprocessing/pool.py", ("worker",), ("_handle_tasks", "_handle_results")),
)
# Functions in which a library's own threads wait for work: (end of the file's path, function)
IDLE = (
    *((pool.file, function) for pool in POOLS for function in pool.works),
    ("multiprocessing/resource_sharer.py", "_serve"),
    ("tqdm/_monitor.py", "TMonitor.run"),
    ("multiprocessing/queues.py", "Queue._feed"),
    ("socketserver.py", "BaseServer.serve_forever"),
    ("multiprocessing/pool.py", "Pool._handle_workers"),
    ("multiprocessing/pool.py", "Pool._handle_tasks"),
    ("multiprocessing/pool.py", "Pool._handle_results"),
    ("ray/_private/gc_collect_manager.py", "PythonGCThread.run"),
)
WAITS = ("/threading.py", "/queue.py", "/selectors.py")  # a thread that waits in one is named by its caller's place
BELOW_IDLE = (*WAITS, "/connection.py", "/synchronize.py", "/socket.py")  # files that functions of IDLE call
# Files in whose functions threads wait for work, outside of multiprocessing and asyncio
RESTS = (*WAITS, "/socket.py", "/subprocess.py", "/concurrent/futures/_base.py",
         *dict.fromkeys(file for file, _ in IDLE if "multiprocessing/" not in file))  # fmt: skip
# Source: Lib/multiprocessing/queues.py, `with self._rlock`, `with self._wlock`: `get` receives with the lock taken
TAKES = Guard("multiprocessing/queues.py", "_rlock", ("get",))
GUARDS = (TAKES, Guard("multiprocessing/queues.py", "_wlock", ("put", "_feed")))
EXECUTORS = {pool.file: pool for pool in POOLS if pool.runs}  # of threads
PROCESSES = tuple(pool.file for pool in POOLS if pool.manages)
# Files of libraries in which threads and tasks stand that wait, beside those of rows
SHARED = "/multiprocessing/synchronize.py"
_MORE = ("_bootstrap>", "/functools.py", "/httpcore/_synchronization.py", "/thread.py", "/logging/__init__.py", "/selectors.py",
         SHARED, *(f"/multiprocessing/{name}.py" for name in ("connection", "popen_fork", "popen_forkserver")))  # fmt: skip
_TRIO = ("_core/_traps", "_core/_parking_lot", "_core/_run", "_core/_io_epoll", "_timeouts", "_threads", "_socket", "_abc",
         "_highlevel_generic", "_highlevel_socket", "_unix_pipes", "_subprocess", "_sync", "_channel")  # fmt: skip
_MORE_ASYNC = (
    *(f"/asyncio/{name}.py" for name in ("mixins", "tasks", "timeouts", "base_subprocess")),
    *(f"/anyio/{name}.py" for name in ("_core/_synchronization", "_backends/_trio", "abc/_streams")),
    *(f"/trio/{name}.py" for name in _TRIO),
    *("/httpcore/_synchronization.py", "/gevent/hub.py"),
)
LIBRARY = (*dict.fromkeys(row.file for row in ROWS if row.file and not row.is_async), *_MORE)
ASYNCIO = (*dict.fromkeys(row.file for row in ROWS if row.file and row.is_async), *_MORE_ASYNC)
LOOPS = tuple(row.file for row in ROWS if "path" in row.state)  # the file of these is asked for in a loop
CHILDREN = tuple(row.file for row in ROWS if row.kind == "Process")
LOCKS = tuple(dict.fromkeys(row.kind for row in ROWS if row.lock))
WITHIN = tuple(dict.fromkeys(row.kind for row in ROWS if row.within))  # kinds whose waits only the same process ends
RINGS = tuple(name for row in ROWS if row.state.get("items") == "(ring)" for name in row.classes)  # queues of C code
ONCE = tuple(dict.fromkeys(row.kind for row in ROWS if row.once))
QUEUES = tuple(row.file for row in ROWS if row.state.get("items") == "queue")  # where `self.queue` is a deque
LENDS = tuple(dict.fromkeys(row.kind for row in ROWS if row.lends))  # kinds of what has a number of permits or connections
ENDS = frozenset(call for row in ROWS for way in row.ways for call in way.ends)
ASYNC_ENDS = frozenset(call for row in ROWS if row.is_async for way in row.ways for call in way.ends)
DOES = {row.kind: row.does for row in ROWS}
_BY_CLASS = {name: row for row in ROWS for name in row.classes}


def of_classes(names: Iterable[str]) -> Primitive | None:
    """The row of an object by the full names of its classes, the most derived one first; None where it is no primitive."""
    return next((_BY_CLASS[name] for name in names if name in _BY_CLASS), None)


def asked_of(names: Iterable[str], call: str) -> tuple[Primitive, Way | None, str] | None:
    """(row, way, how) of a call or attribute of an object that only asks; None where it may do more."""
    for row in (_BY_CLASS[name] for name in names if name in _BY_CLASS):
        way = next((way for way in row.ways if way.asks.get(call)), None)
        if way is not None or call in row.attributes:
            return row, way, way.asks[call] if way is not None else row.attributes[call]
    return None


def enders(kind: str, how: str) -> tuple[set[str], set[str]]:
    """(the calls that end a wait of a kind, those that only ask for its state); none that end it: any code may. `how`: the way,
    '' for any."""
    ways = [way for row in ROWS if row.kind == kind for way in row.ways if how in ("", way.name)]
    asks = {call for way in ways for call, form in way.asks.items() if form in ("is", "not", "count", "")}
    return {call for way in ways for call in way.ends}, asks - {way.name for way in ways}
