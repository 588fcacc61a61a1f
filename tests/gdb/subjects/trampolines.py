"""A stack of Python functions, each called by native code of its own under -X perf. Prints {"functions": innermost
first}."""

import json
import threading
import time


def leaf():
    time.sleep(3600)


def middle():
    leaf()


def outer():
    middle()


threading.Thread(target=outer, name="helper", daemon=True).start()
print(json.dumps({"functions": ["leaf", "middle", "outer"]}), flush=True)
time.sleep(3600)
