"""`pod_parent.py NUMBER HOW WHAT`: a process that waits for its child by HOW, in a pid namespace where the child gets the pid
NUMBER; the child does WHAT. Says its own pids in there: {"pid", "child"}; at the number of its child anything may run outside."""

import asyncio
import concurrent.futures
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

NUMBER, HOW, WHAT = int(sys.argv[1]), sys.argv[2], sys.argv[3]


def of_this_container():
    if WHAT == "pipe":
        os.read(os.pipe()[0], 1)
    if WHAT == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if WHAT == "lock":
        lock = threading.Lock()

        def keeper():
            with lock:
                threading.Event().wait()

        threading.Thread(target=keeper, daemon=True).start()
        time.sleep(0.2)
        lock.acquire()
    time.sleep(7000)


def say(child):
    print(json.dumps({"pid": os.getpid(), "child": child}), flush=True)


def number():
    with open("/proc/sys/kernel/ns_last_pid", "w") as f:
        f.write(str(NUMBER - 1))


def forked():
    number()
    child = os.fork()
    if not child:
        of_this_container()
    say(child)
    return child


def program():
    number()
    return subprocess.Popen([sys.executable, __file__, str(NUMBER), "child", WHAT])


async def in_a_task():
    number()
    child = await asyncio.create_subprocess_exec(sys.executable, __file__, str(NUMBER), "child", WHAT)
    say(child.pid)
    await child.wait()


def main():
    fork = multiprocessing.get_context("fork")
    if HOW == "child":
        of_this_container()
    elif HOW in ("popen", "popen-limit", "popen-poll"):
        child = program()
        say(child.pid)
        if HOW == "popen-poll":
            while child.poll() is None:
                time.sleep(0.05)
        child.wait(3600 if HOW == "popen-limit" else None)
    elif HOW == "process":
        number()
        child = fork.Process(target=of_this_container)
        child.start()
        say(child.pid)
        child.join()
    elif HOW == "executor":
        number()
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=fork) as pool:
            job = pool.submit(of_this_container)
            say(*pool._processes)
            job.result()
    elif HOW == "pool":
        number()
        with fork.Pool(1) as pool:
            say(pool._pool[0].pid)
            pool.apply(of_this_container)
    elif HOW == "waitpid":
        os.waitpid(forked(), 0)
    elif HOW == "waitid":
        os.waitid(os.P_PID, forked(), os.WEXITED)
    elif HOW == "pidfd":
        os.waitid(os.P_PIDFD, os.pidfd_open(forked()), os.WEXITED)
    elif HOW == "task":
        asyncio.run(in_a_task())


if __name__ == "__main__":
    main()
