"""The demo: a real engine with random weights, tensor parallel 2 and requests in flight, and gdb looking into it.

Gets gdb when it is missing, makes the engine's environment in the user's cache folder (the first time: some minutes), starts the
engine, runs gdb's commands, each shown before its output, and ends everything it started, also on Ctrl-C.
"""

import argparse
import os
import signal
import subprocess
import sys
import time

from .engines import START
from .environments import environment
from .say import Failed, say
from .system import need_gdb

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SESSION = os.path.join(os.path.dirname(os.path.abspath(__file__)), "demo_session.py")


def run_gdb(gdb, name, engine):
    """The gdb session of demo_session.py on `engine`, a running `Engine` of kind `name`. -> gdb's exit status."""
    argv = [gdb, "-nx", "-q", "-batch", "-ex", "source " + os.path.join(ROOT, "gdbext", "init.py"), "-ex", "source " + SESSION]
    env = dict(
        os.environ, GDBEXT_DEMO_ENGINE=name, GDBEXT_DEMO_PIDS=" ".join(map(str, engine.pids())), PYTHONDONTWRITEBYTECODE="1"
    )
    say(f"\n$ {os.path.basename(gdb)} -nx -q -batch -ex 'source gdbext/init.py' ...")
    child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, env=env, cwd=ROOT)
    try:
        return child.wait()
    finally:
        if child.poll() is None:  # SIGTERM lets gdb detach, so that nothing stays stopped
            child.terminate()
            try:
                child.wait(timeout=10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def main():
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__.replace("\n\n", "\n"))
    parser.add_argument("--engine", choices=sorted(START), default="vllm")
    parser.add_argument("--tp", type=int, default=2, help="ranks (default 2)")
    parser.add_argument(
        "--stay", action="store_true", help="leave the engine running after gdb's session, until Ctrl-C, to try things"
    )
    options = parser.parse_args()

    def ended(number, frame):
        raise SystemExit(128 + number)  # unwinds the `with` below, which ends the engine

    signal.signal(signal.SIGTERM, ended)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where a shell started this in the background
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup
        signal.signal(signal.SIGHUP, ended)
    start = time.monotonic()
    gdb = need_gdb()[0]
    python = environment(options.engine)
    with START[options.engine](tp=options.tp, python=python) as engine:
        engine.wait_ready(what=f"starting {engine.name} with tensor parallel {options.tp}")
        status = run_gdb(gdb, options.engine, engine)
        if options.stay:
            say(f"\nThe engine runs on as process {engine.pid}; its log is {engine.log}. Ctrl-C ends it.")
            while engine.alive():
                time.sleep(0.5)
    say(f"\n{engine.name} and everything it started have ended. {time.monotonic() - start:.0f} s in all.")
    return 1 if status else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as e:
        sys.exit(f"demo: {e}")
    except KeyboardInterrupt:
        print("\ndemo: interrupted; everything it started has ended", file=sys.stderr)
        sys.exit(130)
