"""frozendicts (3.15) as `VALUES`; prints their reprs and lengths."""

import json
import random
import sys
import time

draw = random.Random(int(sys.argv[1]))


def drawn(depth=0):
    if depth < 3 and draw.random() < 0.5:
        return frozendict({draw.choice((f"k{i}", i, (i, "t"))): drawn(depth + 1) for i in range(draw.randrange(5))})  # noqa: F821
    return draw.choice([1, "text", None, 2.5, (1,), [1, 2], {"a": 1}])


VALUES = [frozendict(), frozendict(a=1)] + [drawn() for _ in range(40)]  # noqa: F821
print(json.dumps([[repr(v), len(v) if isinstance(v, frozendict) else None] for v in VALUES]), flush=True)  # noqa: F821
time.sleep(3600)
