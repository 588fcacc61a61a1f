"""An engine core with a vLLM release's own Scheduler, never without requests, and its workers: STAND-INS that compute nothing,
titled as vLLM titles them. Each step goes to every worker and waits for its answer.

engine_of_ranks.py FOLDER VERSION PLACE WORKERS SECONDS       SECONDS: of a step

Says its pids. Counts its steps in the first 8 bytes of PLACE/steps. A file PLACE/NAME.do, NAME "core" or of a worker, holds one
word; it is removed once that is being done: a way of planted.py, in this process; of a worker the new SECONDS; of the core
`rest`: no more requests come; `work`: they come again; `grammar`: nothing but a request whose grammar is never compiled; `full`:
nothing but one that the pool has no room for; `abort`: these two are taken back."""

import json
import os
import random
import socket
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import planted
import setproctitle

KEPT = 3  # requests at a time


def told(place, name):
    """The word that this process is to do now, or ''."""
    path = os.path.join(place, name + ".do")
    if not os.access(path, os.F_OK):
        return ""
    with open(path) as f:
        word = f.read()
    os.unlink(path)
    return word


class WorkerProc:
    def __init__(self, name, place, seconds, core):
        self.name, self.place, self.seconds, self.core = name, place, seconds, core

    def worker_busy_loop(self):
        while self.core.recv(1):
            self.execute_model()
            self.core.sendall(b"x")

    def execute_model(self):
        time.sleep(self.seconds)
        way = told(self.place, self.name)
        if way[:1].isdigit():
            self.seconds = float(way)
        elif way:
            planted.stand(way, os.path.join(self.place, self.name))


class EngineCoreProc:
    def __init__(self, scheduler, step, request_of, place, workers):
        self.scheduler, self._step, self._request_of, self.place, self.workers = scheduler, step, request_of, place, workers
        self.draw, self.number, self.steps, self.rests, self.left = random.Random(1), 0, 0, False, {}
        self.said = os.open(os.path.join(place, "steps"), os.O_WRONLY | os.O_CREAT)

    def run_busy_loop(self):
        while True:
            word = told(self.place, "core")
            if word in planted.WAYS:
                planted.stand(word, os.path.join(self.place, "core"))
            elif word:
                getattr(self, word)()
            self._take_in()
            if self.scheduler.requests:
                self.step()
            else:
                time.sleep(0.02)

    def rest(self):
        self.rests = True

    def work(self):
        self.rests = False

    def grammar(self):
        from vllm.v1.request import RequestStatus

        one = self._alone(32)
        one.structured_output_request = type("StructuredOutputRequest", (), {"grammar": None, "is_grammar_ready": False})()
        one.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
        self.scheduler.add_request(one)

    def full(self):
        self.scheduler.add_request(self._alone(600))

    def abort(self):
        self._end(list(self.scheduler.requests))
        self.rests = False

    def _alone(self, tokens):
        self.abort()
        self.rests = True
        return self._request_of("alone", list(range(tokens)))

    def _take_in(self):
        self._end([name for name, at in self.left.items() if self.steps >= at])
        while len(self.scheduler.requests) < KEPT and not self.rests:
            self.number += 1
            name = f"request-{self.number}"
            self.left[name] = self.steps + self.draw.randrange(20, 80)
            self.scheduler.add_request(self._request_of(name, [self.number + i % 50 for i in range(self.draw.randrange(8, 90))]))

    def _end(self, names):
        from vllm.v1.request import RequestStatus

        for name in names:
            self.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)
            self.left.pop(name, None)

    def step(self):
        if self._step(self.scheduler):
            for worker in self.workers:
                worker.sendall(b"x")
            for worker in self.workers:
                worker.recv(1)
            self.steps += 1
            os.pwrite(self.said, struct.pack("<Q", self.steps), 0)
        else:
            time.sleep(0.005)


def main():
    if sys.argv[1] == "worker":
        name, place, seconds, core = sys.argv[2:]
        setproctitle.setproctitle(f"VLLM::{name}")
        return WorkerProc(name, place, float(seconds), socket.socket(fileno=int(core))).worker_busy_loop()
    import older_engine
    import vllm_release

    folder, version, place, count, seconds = sys.argv[1:]
    setproctitle.setproctitle("VLLM::EngineCore")
    older_engine.use(folder, version)
    scheduler = vllm_release.scheduler_of(version, "full")
    from vllm.v1.core import kv_cache_utils

    kv_cache_utils.init_none_hash(older_engine.sha256_bytes)
    pids, workers = {"core": os.getpid()}, []
    for number in range(int(count)):
        here, there = socket.socketpair()
        name = f"Worker_TP{number}"
        words = [sys.executable, os.path.realpath(__file__), "worker", name, place, seconds, str(there.fileno())]
        pids[name] = subprocess.Popen(words, pass_fds=[there.fileno()]).pid
        there.close()
        workers.append(here)
    core = EngineCoreProc(scheduler, vllm_release.step, vllm_release.request_of, place, workers)
    print(json.dumps(pids), flush=True)
    return core.run_busy_loop()


if __name__ == "__main__":
    main()
