"""Under gevent: three greenlets wait for a lock, one sleeps, the main one joins them, so the hub runs."""

from gevent import monkey

monkey.patch_all()

import json  # noqa: E402
import sys  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402

import gevent  # noqa: E402

lock = threading.Lock()
lock.acquire()


def holds_up():
    lines.append(sys._getframe().f_lineno + 1)
    lock.acquire()


def sleeper():
    time.sleep(1000)


lines = []
waiting = [gevent.spawn(holds_up) for _ in range(3)]
sleeping = gevent.spawn(sleeper)
gevent.sleep(0)
truth = {"waiting": [hex(id(g)) for g in waiting], "sleeping": hex(id(sleeping)), "hub": hex(id(gevent.get_hub()))}
print(json.dumps({**truth, "line": lines[0]}), flush=True)
gevent.joinall([*waiting, sleeping])
