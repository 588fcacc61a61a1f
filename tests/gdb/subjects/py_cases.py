"""What a subject says of its objects: kept by `add` and `has`, told as one line of JSON by `tell`, which then sleeps.

{"version", "objects": [[label, address, repr(object), object.__repr__(object)]], "attributes": [[label, address, name,
repr(value)]], "opaque": [[address, text]], "arrays": [[address, shape, dtype]]}"""

import json
import sys
import time

cases, attributes = [], []


def add(label, *objects):
    """Objects whose repr is to be read."""
    for i, obj in enumerate(objects):
        cases.append((f"{label} {i}" if len(objects) > 1 else label, obj))


def has(label, obj, *names):
    """An object and attributes of it."""
    for name in names:
        attributes.append((label, obj, name, getattr(obj, name)))
    cases.append((label, obj))


def tell(opaque=(), arrays=()):
    """Prints the truth. `opaque`: objects with a repr of their own, and containers of one of those."""
    truth = {"version": list(sys.version_info[:3]), "opaque": []}
    truth["objects"] = [[label, id(obj), repr(obj), object.__repr__(obj)] for label, obj in cases]
    truth["attributes"] = [[label, id(obj), name, repr(value)] for label, obj, name, value in attributes]
    for obj in opaque:
        inner = obj[0] if isinstance(obj, list) else obj["k"] if isinstance(obj, dict) else obj
        text = object.__repr__(inner)
        shown = f"[{text}]" if isinstance(obj, list) else f"{{'k': {text}}}" if isinstance(obj, dict) else text
        truth["opaque"].append([id(obj), shown])
    truth["arrays"] = [[id(a), str(a.shape), str(a.dtype)] for a in arrays]
    sys.stdout.write(json.dumps(truth) + "\n")
    sys.stdout.flush()
    time.sleep(3600)
