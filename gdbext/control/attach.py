"""Attaching fast and leaving no trace: what `llm-attach`, `llm-detach`, `llm-continue` and `llm-apply` stand on.

Fast: the executable and the libraries that the stack seems to need are read before the process is stopped, and with
`auto-solib-add off` nothing else is read after. No trace: the guard knows of every process before it is touched; an error or Ctrl-C
half-way detaches what this command attached; a process that was stopped before is stopped afterwards, any other runs.
"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import gdb

from ..access import guard as guards
from ..access import libraries, ptrace
from ..access.cli_gdb import command, quoted
from ..access.proc import permission_hint
from ..errors import GdbextError, NotFoundError
from . import inferior_breakpoints
from .events import listen

if TYPE_CHECKING:
    from typing import Callable

# Settings that a command of ours changes while it works, and puts back before it returns; those a gdb does not know are left out.
QUIET = {
    "confirm": "off",
    "pagination": "off",
    "suppress-cli-notifications": "on",
    "print inferior-events": "off",
    "print thread-events": "off",
    "debuginfod enabled": "off",
    "exec-file-mismatch": "off",
}
WORD = {True: "on", False: "off", None: "unlimited"}


class AttachedProcess:
    """A process that we attached. `pause`: seconds from the stop until the attach was done; `standstill()`: all seconds so
    far."""

    def __init__(self, pid, label, was_stopped):
        self.pid, self.label, self.was_stopped = pid, label, was_stopped
        self.start = ptrace.start_time(pid)
        self.inferior, self.added, self.had_file = None, False, False
        self.since, self.past, self.pause = None, 0.0, 0.0
        self.ran = False
        self.libraries = libraries.Loaded()

    def standstill(self):
        return self.past + (time.monotonic() - self.since if self.since is not None else 0.0)

    def stopped(self):
        if self.since is None:
            self.since = time.monotonic()

    def let_go(self):
        if self.since is not None:
            self.past += time.monotonic() - self.since
            self.since = None

    def resumed(self):
        self.let_go()
        self.ran = True


class _State:
    attached = {}  # pid -> AttachedProcess, in the order of attaching
    guard = guards.Guard()
    guard_error = ""
    watched = set()  # pids that the guard knows of although gdb attached them by itself
    saved = {}  # settings that stay changed while something is held
    kept = {}  # pid -> (why it must not be detached now, whether that is still so)
    busy = False  # attaching or detaching: gdb then reports resumptions that are none
    schedule = None  # the user's schedule-multiple while processes run
    background = False  # they run behind the prompt: the stop gives it back


# ---- settings --------------------------------------------------------------------------------------------------------
def setting(name):
    """The text that `set NAME` takes for its present value, or None where this gdb has no such setting."""
    try:
        value = gdb.parameter(name)
    except RuntimeError:
        return None
    return WORD[value] if value is None or isinstance(value, bool) else str(value)


class QuietGdb:
    """A `with` block in which gdb asks nothing, tells nothing and changes no focus for good."""

    def __init__(self, keep_focus=True):
        self.keep_focus = keep_focus

    def __enter__(self):
        self.saved, _State.busy = {}, True
        for name, value in QUIET.items():
            old = setting(name)
            if old is not None and old != value:
                self.saved[name] = old
                gdb.execute(command("set {} {}", name, value), to_string=True)
        self.inferior, self.thread = gdb.selected_inferior(), gdb.selected_thread()
        self.frame = libraries._selected_frame()
        return self

    def __exit__(self, *_):
        try:
            if self.keep_focus:
                self._focus()
        finally:
            _State.busy = False
            for name, value in self.saved.items():
                gdb.execute(command("set {} {}", name, value), to_string=True)

    def _focus(self):
        if self.inferior.is_valid() and gdb.selected_inferior().num != self.inferior.num:
            select(self.inferior.num)
        if self.thread is not None and self.thread.is_valid():
            self.thread.switch()
            try:
                if self.frame is not None and self.frame.is_valid():
                    self.frame.select()
            except gdb.error:
                pass  # the thread runs by now, or its stack is another: there is no frame to go back to


class BlockSigint:
    """A `with` block in which Ctrl-C waits: while gdb waits for a process to stop it would pass SIGINT on to that process, and
    end it."""

    def __enter__(self):
        self.before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})

    def __exit__(self, *_):
        signal.pthread_sigmask(signal.SIG_SETMASK, self.before)


def select(number):
    """Makes inferior `number` the selected one."""
    gdb.execute(command("inferior {}", number), to_string=True)


# ---- before touching anything ----------------------------------------------------------------------------------------
def check(pid):
    """Raises `GdbextError` (one line: what, and what to do) for a process that cannot be attached; returns whether it is in a
    group-stop."""
    state = ptrace.status(pid)
    if state is None:
        raise NotFoundError(f"process {pid} does not exist (any more): llm-ranks lists those that do")
    if state["state"] in "ZX":
        raise GdbextError(f"process {pid} is a zombie: it has ended and only waits for its parent to take notice")
    if state["tgid"] != pid:
        raise GdbextError(f"{pid} is a thread of process {state['tgid']}: attach that")
    if state["kthread"]:
        raise GdbextError(f"process {pid} is a kernel thread: there is nothing to attach to")
    if pid == os.getpid():
        raise GdbextError(f"process {pid} is this gdb")
    for tracer in ptrace.tracers(pid):
        if tracer == os.getpid():
            raise GdbextError(f"process {pid} is attached in this gdb already: see info inferiors")
        raise GdbextError(f"process {pid} is already traced by {_name(tracer)}: end that first")
    try:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY))
    except PermissionError:
        raise GdbextError(f"process {pid}: no permission to attach; {permission_hint(pid)}") from None
    except OSError as e:
        raise NotFoundError(f"process {pid}: {e.strerror}") from None
    return ptrace.is_stopped(pid)


def _name(pid):
    try:
        with open(f"/proc/{pid}/comm") as f:
            return f"process {pid} ({f.read().strip()})"
    except OSError:
        return f"process {pid}"


# ---- attach ----------------------------------------------------------------------------------------------------------
def attached(pid=None):
    """The `AttachedProcess` of `pid`, or all of them in the order of attaching. Processes that have ended are dropped."""
    for h in list(_State.attached.values()):
        inferior = _inferior(h)
        if inferior is None or inferior.pid != h.pid:
            _drop(h)
    if pid is None:
        return list(_State.attached.values())
    return _State.attached.get(pid)


def _inferior(h):
    return next((i for i in gdb.inferiors() if i.num == h.inferior), None)


def guard_error():
    """Why no guard watches, or ''."""
    return _State.guard_error


def guard_process(pid):
    """Tells the guard of a process that gdb itself attached: should gdb be killed, its debug registers are cleared and it runs on."""
    if pid in _State.attached:
        return
    try:
        _State.guard.start()
        _State.guard.own(pid, False)
        _State.watched.add(pid)
        _State.guard_error = ""
    except GdbextError as e:
        _State.guard_error = str(e)


def armed(pid, yes=True):
    """Tells the guard that debug registers of a process are set (or are not any more)."""
    if not _State.guard_error and (pid in _State.attached or pid in _State.watched):
        _State.guard.armed(pid, yes)


def keep(pid: int, reason: str, still: Callable[[], bool]) -> None:
    """Until `still()` is false, detaching the process is refused with `reason`: it would die of it."""
    _State.kept[pid] = reason, still


def unguard_process(pid):
    """It is gone, or gdb has let go of it."""
    if pid in _State.watched:
        _State.watched.discard(pid)
        if not _State.guard_error:
            _State.guard.free(pid)
        if not _State.attached and not _State.watched:
            _State.guard.end()


def attach(processes, which="main"):
    """Attaches to `[(pid, label)]`, one inferior each, and selects the first. Returns `[AttachedProcess]`.

    `which` libraries' symbols are read: "main" (what the main thread's stack needs, files above 100 MB left out), "stacks"
    (what all
    stacks need), "all", "none". An error or Ctrl-C on the way detaches all that this call attached, then is raised again."""
    fresh = []
    deadline = time.monotonic() + 10
    while guards.recovering() and time.monotonic() < deadline:
        time.sleep(0.05)  # a gdb was killed a moment ago: what it held is not yet as it was before
    plan = [(pid, label, check(pid)) for pid, label in dict.fromkeys(processes)]  # nobody is stopped when one cannot be
    try:
        _State.guard.start()
        _State.guard_error = ""
    except GdbextError as e:
        _State.guard_error = str(e)
    listen(cont=_on_continue, stop=_on_stop, exited=_on_exit, gdb_exiting=_on_gdb_exit)
    with QuietGdb(keep_focus=False) as focus, inferior_breakpoints.suspended():
        scratch, rooms = None, []
        try:
            _save("auto-solib-add", "off")
            for _ in plan:
                rooms.append(_free_inferior(rooms))
            scratch = _read_ahead(plan, which)
            for (pid, label, was_stopped), room in zip(plan, rooms):
                _attach_one(AttachedProcess(pid, label, was_stopped), room, which, fresh)
            select(fresh[0].inferior)
        except BaseException as e:
            focus.keep_focus = True
            with BlockSigint():
                _roll_back(fresh)
            if isinstance(e, gdb.error):
                raise GdbextError(_reason(fresh[-1] if fresh else None, e)) from None
            raise
        finally:
            for number, added in rooms + [(scratch, True)]:
                if added and number not in {h.inferior for h in _State.attached.values()}:
                    _remove(number)
        if focus.inferior.is_valid() and focus.inferior.pid:
            focus.keep_focus = focus.inferior.pid not in {h.pid for h in fresh} and bool(focus.thread)
    return fresh


def _reason(h, error):
    text = str(error).splitlines()[-1] if str(error) else "gdb gave no reason"
    if h is None:
        return text
    others = ptrace.tracers(h.pid) - {os.getpid()}
    if others:
        return f"process {h.pid} is already traced by {_name(others.pop())}: end that first"
    if "not permitted" in text or "Permission denied" in text:
        return f"process {h.pid}: no permission to attach; {permission_hint(h.pid)}"
    if ptrace.start_time(h.pid) != h.start:
        return f"process {h.pid} ended while it was being attached"
    return f"process {h.pid}: gdb could not attach: {text}"


def _read_ahead(plan, which):
    """Reads the symbols that the attached processes will need into an inferior of its own, before anything is stopped: gdb
    shares what it has read between inferiors. Returns the number of that inferior, or None."""
    if which == "none":
        return None
    wanted = {}
    for pid, _, _ in plan:
        if os.stat(f"/proc/{pid}/root/").st_ino != os.stat("/").st_ino:
            continue  # in a container: its files have other names here
        threads = ptrace.tids(pid) if which == "stacks" else None
        wanted.update(dict.fromkeys(libraries.likely(pid, threads, None if which == "stacks" else libraries.AHEAD)))
    if not wanted:
        return None
    current = gdb.selected_inferior().num
    number = _add_inferior()
    select(number)
    try:
        for path in wanted:
            try:
                gdb.execute(command("add-symbol-file {}", quoted(path)), to_string=True)
            except (gdb.error, GdbextError):
                continue  # no object file, or a name that is none for a command: the attach does without
    finally:
        select(current)
    return number


def _add_inferior():
    before = {i.num for i in gdb.inferiors()}
    gdb.execute("add-inferior -no-connection", to_string=True)
    return next(i.num for i in gdb.inferiors() if i.num not in before)


def _remove(number):
    if number is None or all(i.num != number for i in gdb.inferiors()):
        return
    if gdb.selected_inferior().num == number:
        others = [i.num for i in gdb.inferiors() if i.num != number]
        if not others:
            return
        select(others[0])
    gdb.execute(command("remove-inferiors {}", number), to_string=True)


def _free_inferior(taken):
    """(number, whether we added it) of an inferior without process and program that is not among `taken`."""
    for i in gdb.inferiors():
        empty = not i.pid and i.progspace.filename is None and not i.progspace.objfiles()
        if empty and all(i.num != number for number, _ in taken):
            return i.num, False
    return _add_inferior(), True


def _attach_one(h, room, which, fresh):
    h.inferior, h.added = room
    fresh.append(h)
    if not _State.guard_error:
        _State.guard.own(h.pid, h.was_stopped)
    select(h.inferior)
    try:
        exe = os.readlink(f"/proc/{h.pid}/exe")
        if os.path.samefile(f"/proc/{h.pid}/exe", exe):
            gdb.execute(command("file {}", quoted(exe)), to_string=True)  # read before the stop, not after
    except (OSError, gdb.error, GdbextError):
        pass  # in a container, deleted, or a name that is none for a command: gdb finds it itself, at the price of a longer pause
    with BlockSigint():
        h.stopped()
        _State.attached[h.pid] = h
        gdb.execute(command("attach {}", h.pid), to_string=True)
    if which == "main":
        main = [t for t in gdb.selected_inferior().threads() if t.ptid[1] == h.pid]
        h.libraries = libraries.load_for(main)
    elif which == "stacks":
        h.libraries = libraries.load_for(None, None)
    elif which == "all":
        h.libraries = libraries.load_all()
    main = [t for t in gdb.selected_inferior().threads() if t.ptid[1] == h.pid]
    if main:
        main[0].switch()
    h.pause = h.standstill()


def _roll_back(fresh):
    """Detaches what a failed attach has attached. Called with an exception on its way: it raises none of its own."""
    for h in reversed(fresh):
        try:
            _detach_one(h)
        except (gdb.error, GdbextError):
            _State.attached.setdefault(h.pid, h)  # the guard goes on watching it; the error that is raised says what went wrong
    _give_back()


# ---- detach ----------------------------------------------------------------------------------------------------------
def detach(pids=None):
    """Detaches `pids` (default: all of ours); returns `[(AttachedProcess, seconds of standstill)]`. Raises after having tried each."""
    wanted = attached() if pids is None else [h for h in attached() if h.pid in set(pids)]
    done, errors = [], []
    with QuietGdb():
        for h in wanted:
            try:
                with BlockSigint():
                    _detach_one(h)
                done.append((h, h.past))
            except GdbextError as e:
                errors.append(str(e))
            except gdb.error as e:
                errors.append(f"process {h.pid}: gdb could not detach: {str(e).splitlines()[-1]}")
        _give_back()
    if errors:
        raise GdbextError("; ".join(errors))
    return done


def _detach_one(h):
    inferior = _inferior(h)
    if inferior is not None and inferior.pid == h.pid:
        reason, still = _State.kept.pop(h.pid, ("", None))
        if still is not None and still():
            _State.kept[h.pid] = reason, still
            raise GdbextError(reason)
        if h.was_stopped and not h.ran:
            # It stays stopped: the signal waits until gdb lets go, and no instruction runs before it is taken.
            _signal(h.pid, signal.SIGSTOP)
        _take_interrupts(h)
        gdb.execute(command("detach inferiors {}", h.inferior), to_string=True)
    h.let_go()
    if ptrace.start_time(h.pid) == h.start and not ptrace.tracers(h.pid):
        # gdb's own SIGSTOP may still be on its way when an attach was broken off.
        guards.restore_run_state(h.pid, h.start, h.was_stopped and not h.ran, 0.02)
    _drop(h)


def _take_interrupts(h):
    """Ctrl-C pressed twice while it ran: gdb passed both on to the process and took one back. The other one would end it as soon as it is
    let go, so gdb takes that too."""
    bit = 1 << signal.SIGINT - 1
    inferior = _inferior(h)
    for _ in range(8):
        states = [ptrace.status(h.pid, tid) for tid in ptrace.tids(h.pid)]
        if not any(s and s["pending"] & bit and not s["blocked"] & bit for s in states) or any(
            t.is_running() for t in inferior.threads()
        ):
            return
        if gdb.execute("info signals SIGINT", to_string=True).splitlines()[-1].split()[1] != "Yes":
            return  # the user does not want it to stop
        select(h.inferior)
        gdb.execute("continue", to_string=True)


def _on_gdb_exit(_):
    """gdb lets go of what it holds by itself now."""
    with QuietGdb(keep_focus=False), BlockSigint():
        for h in attached():
            _take_interrupts(h)


def _signal(pid, number):
    try:
        os.kill(pid, number)
    except OSError:
        pass  # it has ended


def _drop(h):
    """Forgets a process that is detached or gone, and its inferior where that was ours."""
    _State.attached.pop(h.pid, None)
    if not _State.guard_error:
        _State.guard.free(h.pid)
    inferior = _inferior(h)
    if inferior is None or inferior.pid:
        return
    if h.added:
        _remove(h.inferior)
    else:
        current = gdb.selected_inferior().num
        select(h.inferior)
        gdb.execute("file", to_string=True)  # it was empty before
        select(current)


def _save(name, value):
    if name not in _State.saved:
        _State.saved[name] = setting(name)
        gdb.execute(command("set {} {}", name, value), to_string=True)


def _give_back():
    """With the last process gone: settings as before, no guard."""
    if _State.attached:
        return
    _restore_schedule()
    for name, value in _State.saved.items():
        gdb.execute(command("set {} {}", name, value), to_string=True)
    _State.saved = {}
    if not _State.watched:
        _State.guard.end()


# ---- keeping the books on who stands still ---------------------------------------------------------------------------
def _on_continue(event):
    if _State.busy:
        return
    together = bool(gdb.parameter("schedule-multiple"))
    current = gdb.selected_inferior().num
    for h in _State.attached.values():
        if together or h.inferior == current:
            if h.since is not None and h.was_stopped and not h.ran and not _State.guard_error:
                _State.guard.resumed(h.pid)
            h.resumed()


def _on_stop(_):
    if _State.busy:
        return
    for h in _State.attached.values():
        h.stopped()
    if _State.schedule is not None and _State.background:
        gdb.post_event(
            _restore_schedule
        )  # in the foreground `resume` does it: what is posted and never run crashes gdb 13 at its end


def _on_exit(event):
    # Comes at a detach too. Its inferior may not be touched here; the next command of ours that asks who is held drops it.
    h = next((h for h in _State.attached.values() if h.inferior == event.inferior.num), None)
    if h is not None:
        h.let_go()


def _restore_schedule():
    if _State.schedule is not None:
        value, _State.schedule = _State.schedule, None
        gdb.execute(command("set schedule-multiple {}", value), to_string=True)


# ---- continue, apply -------------------------------------------------------------------------------------------------
def resume(pids=None, background=False):
    """Lets one of ours, or all of them, run: until one stops or Ctrl-C, or in the background. Returns their `[AttachedProcess]`.

    gdb's all-stop mode resumes one inferior or every one: `schedule-multiple` is on for as long as they run."""
    ours = attached()
    wanted = ours if pids is None else [h for h in ours if h.pid in set(pids)]
    if not wanted:
        raise GdbextError("nothing to continue: no process is attached by llm-attach")
    others = [i for i in gdb.inferiors() if i.pid and i.num not in {h.inferior for h in wanted}]
    if len(wanted) > 1 and others:
        count = f"{len(wanted)} of {len(wanted) + len(others)}"
        raise GdbextError(f"gdb resumes one process or all of them, not {count}: use llm-continue all, or detach the others")
    running = [h for h in wanted if any(t.is_running() for t in _inferior(h).threads())]
    if running:
        raise GdbextError(f"process {running[0].pid} is running already")
    if gdb.selected_inferior().num not in {h.inferior for h in wanted}:
        with QuietGdb(keep_focus=False):
            select(wanted[0].inferior)
    together = "on" if len(wanted) > 1 else "off"
    if _State.schedule is None:
        _State.schedule = setting("schedule-multiple")
    gdb.execute(command("set schedule-multiple {}", together), to_string=True)
    _State.background = False
    try:
        gdb.execute("continue &" if background else "continue")
        _State.background = background
    except gdb.error as e:
        raise GdbextError(f"gdb could not continue: {str(e).splitlines()[-1]}") from None
    finally:
        if not _State.background:
            _restore_schedule()
    return wanted


def apply(processes, line):
    """Runs a gdb command with each of `[AttachedProcess]` selected; returns `[(AttachedProcess, output, error or '')]`. The focus is as before
    afterwards."""
    results = []
    with QuietGdb():
        for h in processes:
            try:
                select(h.inferior)
                results.append((h, gdb.execute(command("{}", line), to_string=True) or "", ""))
            except (gdb.error, gdb.GdbError, GdbextError) as e:
                results.append((h, "", str(e)))
    return results
