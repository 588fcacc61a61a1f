"""What comes and goes while it is recorded. Runs, and says {"ready": 1} in step():

* "MainThread": in step() all the time;
* "server": runs a snippet of text (exec) for each request, 20 ms in work() below its <module>, as notebooks and rule engines do;
* a thread for each of many short jobs: 15 ms in job() below Thread._bootstrap.
"""

import sys
import threading
import time

sys.setswitchinterval(0.0005)


def work(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def serve():
    number = 0
    while True:
        number += 1
        exec(compile(f"result = work(0.02)\nrequest = {number}\n", "<snippet>", "exec"), {"work": work})
        time.sleep(0.02)


def job():
    end = time.perf_counter() + 0.015
    while time.perf_counter() < end:
        pass


def starts():
    while True:
        one = threading.Thread(target=job, name="job")
        one.start()
        one.join()
        time.sleep(0.01)


def step():
    print('{"ready": 1}', flush=True)
    while time.perf_counter():
        pass


for function in (serve, starts):
    threading.Thread(target=function, name=function.__name__, daemon=True).start()
step()
