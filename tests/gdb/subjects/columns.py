"""A stack whose calls stand in the middle of lines, and over several. Prints [[function, line, end line, column, end column]] of
its frames, innermost first, as its own code objects say."""

import json
import sys
import time


def innermost():
    tell(), time.sleep(3600)


def tell():
    found, frame = [], sys._getframe(1)
    while frame is not None:
        code, places = frame.f_code, [None] * 4
        if hasattr(code, "co_positions"):
            places = list(code.co_positions())[frame.f_lasti // 2]
        found.append([code.co_name, places[0], places[1], places[2], places[3]])
        frame = frame.f_back
    print(json.dumps({"frames": found}), flush=True)


def between(x):
    return 1 + (innermost() or 2) * x


def wide():
    return [
        "ä",
        between(
            3,
        ),
    ]


wide()
