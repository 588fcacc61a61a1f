"""Our own threads in gdb's process."""

from __future__ import annotations

import signal
import threading
from typing import Any, Callable

from ..errors import NO_MORE, GdbextError


def background_thread(run: Callable[..., Any], *arguments: Any) -> threading.Thread:
    """Starts a daemon thread that no signal reaches. -> the `threading.Thread`

    gdb waits for SIGCHLD in its main thread. Linux may deliver that signal to any thread that does not block it. gdb would then
    wait for ever, and the process that it attaches to would stay stopped. Ctrl-C is for gdb too. `GdbextError` where the kernel
    gives no thread."""
    thread = threading.Thread(target=run, args=arguments, daemon=True)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        thread.start()  # it blocks what this thread blocks now
    except RuntimeError as e:
        raise GdbextError(f"no thread can be started here ({e}): {NO_MORE}") from None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return thread
