"""text_copies.py LIBRARY: copies the code of its interpreter to memory of no file, at its own place, and waits in C.

Says {"copied": [path of each file whose code was copied]} as JSON."""

import ctypes
import json
import os
import sys

library = ctypes.CDLL(sys.argv[1])
library.copied.argtypes = [ctypes.c_ulong, ctypes.c_ulong]
done = []
with open("/proc/self/maps") as f:
    lines = f.read().splitlines()
for words in (line.split() for line in lines):
    if words[1] == "r-xp" and len(words) > 5 and os.path.basename(words[5]).startswith(("python", "libpython")):
        start, end = (int(word, 16) for word in words[0].split("-"))
        assert library.copied(start, end) == 0, words
        done.append(words[5])
print(json.dumps({"copied": done}), flush=True)
library.waits()
