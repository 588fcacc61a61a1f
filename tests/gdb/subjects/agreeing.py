"""Values that must agree at every moment, changed as fast as Python can: of each pair the second is the first or one behind it.
`quiet`: they are as they were, and nothing changes."""

import json
import os
import sys
import time


class Box:
    pass


box, table, row, names = Box(), {"first": 0, "second": 0}, [0, 0], {"now": ["0", "0"]}
box.first = box.second = 0


def step(n):
    box.first = n
    table["first"] = n
    row[0] = n
    names["now"] = [str(n), str(n)]
    row[1] = n
    table["second"] = n
    box.second = n


def main():
    step(1)
    print(json.dumps({"pid": os.getpid()}), flush=True)
    n = behind = 1
    while sys.argv[1] == "moves":
        n += 1
        step(n)
        behind = n
    time.sleep(900)
    return behind


main()
