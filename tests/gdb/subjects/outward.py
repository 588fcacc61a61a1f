"""Names in several frames: an inner frame's `self` lacks the attribute that is asked for, outer ones have it. Prints its pid."""

import json
import os
import time


class Logger:
    def __init__(self):
        self.name = "log"

    def flush(self, rank):
        local_to_flush = 1
        print(json.dumps({"pid": os.getpid()}), flush=True)
        time.sleep(3600)
        return local_to_flush


class Scheduler:
    def __init__(self):
        self.running = ["req-1", "req-2"]

    def schedule(self, rank=3):
        step = 17
        self.logger.flush(rank=None)
        return step

    logger = Logger()


class EngineCore:
    def __init__(self):
        self.scheduler = Scheduler()

    def loop(self):
        beyond = "outer"
        self.scheduler.schedule()
        return beyond


EngineCore().loop()
