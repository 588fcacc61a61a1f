"""foreign_programs.py NAME hung|well: a server, pool or pipeline of the standard library or of another library, whose own code
does the waiting, brought into a hang, or, of the same program, left at work or at rest. Says {"pids": to look at, "right":
verdicts}, then lives it. -list: {name: {"right": verdicts of the hang, [] where there is none, "libraries": it needs more than
the standard library}}."""

import contextlib
import json
import os
import sys
import threading
import time

PROGRAMS = {}
LATE = 0.02  # seconds that a part of a healthy one takes
HERE = os.path.dirname(os.path.abspath(__file__))


def program(*right, libraries=False):
    """A function of (say, hung) that lives the program; `say(*children)` tells who is to be looked at besides this process, or
    instead of it where `alone` is False."""

    def take(function):
        PROGRAMS[function.__name__] = function, right, libraries
        return function

    return take


def begin(function, *arguments):
    """Runs `function` in a thread, a little later than this returns."""
    threading.Thread(target=function, args=arguments, daemon=True).start()
    time.sleep(0.2)


def forked(function, *arguments):
    """-> the pid of a child that runs `function`."""
    pid = os.fork()
    if not pid:
        try:
            function(*arguments)
        finally:
            os._exit(1)
    return pid


def nap(hung):
    """What somebody does on whom others wait."""
    time.sleep(1000 if hung else LATE)


def main():
    import foreign_daemons  # noqa: F401
    import foreign_libraries  # noqa: F401
    import foreign_processes  # noqa: F401
    import foreign_threads  # noqa: F401

    if sys.argv[1:] == ["-list"]:
        print(json.dumps({name: {"right": right, "libraries": more} for name, (_, right, more) in PROGRAMS.items()}))
        return
    function, right, _ = PROGRAMS[sys.argv[1]]
    hung = sys.argv[2] == "hung"

    def say(*children, alone=True):
        pids = [os.getpid(), *children] if alone else children
        print(json.dumps({"pids": pids, "right": right if hung else []}), flush=True)

    with contextlib.suppress(KeyboardInterrupt):
        function(say, hung)


if __name__ == "__main__":
    sys.modules["foreign_programs"] = sys.modules["__main__"]
    main()
