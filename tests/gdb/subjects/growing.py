"""For subjects whose containers grow where a test wants it."""

import json
import os


def serve(grow):
    """`grow`: {name: function of a number}. Each grows once; then each line read names one, which grows by 500. Never returns."""
    for one in grow.values():
        one(0)
    print(json.dumps({"names": sorted(grow)}), flush=True)
    while True:
        name = os.read(0, 100).decode().strip()
        if not name:
            os._exit(0)
        for i in range(500):
            grow[name](i)
        os.write(1, b"\n")
