"""A strict reader of OpenMetrics 1.0 text: raises `ValueError` for what the specification forbids of gauges and counters."""

import re

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(rf'({NAME})(?:\{{((?:{NAME}="(?:[^"\\\n]|\\["\\n])*",?)*)\}})? (\S+)')
LABEL = re.compile(rf'({NAME})="((?:[^"\\\n]|\\["\\n])*)"')
NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")


def read(text):
    """-> {name of a sample: {its labels, sorted: value}}"""
    lines = text.split("\n")
    if lines[-2:] != ["# EOF", ""]:
        raise ValueError("it does not end with # EOF")
    families, found, family = {}, {}, ""
    for line in lines[:-2]:
        if line.startswith("# "):
            word, name, rest = (line[2:] + " ").split(" ", 2)
            if word == "TYPE":
                if name in families:
                    raise ValueError(f"{name} has two families")
                family = name
            if name != family or word in families.setdefault(name, {}) or word not in ("TYPE", "UNIT", "HELP"):
                raise ValueError(line)
            families[name][word] = rest.strip()
            if word == "UNIT" and not name.endswith("_" + rest.strip()):
                raise ValueError(f"{name} does not end with its unit")
            continue
        one = SAMPLE.fullmatch(line)
        if one is None or not NUMBER.fullmatch(one[3]):
            raise ValueError(line)
        kind = families[family]["TYPE"]
        if one[1] != family + {"counter": "_total", "gauge": ""}[kind] or kind == "counter" and float(one[3]) < 0:
            raise ValueError(f"{one[1]} is no sample of the {kind} {family}")
        labels = LABEL.findall(one[2] or "")
        key = tuple(sorted(labels))
        if len(dict(labels)) != len(labels) or key in found.setdefault(one[1], {}):
            raise ValueError(f"twice: {line}")
        found[one[1]][key] = float(one[3])
    return found
