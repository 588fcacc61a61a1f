"""Watches processes and posts a verdict to a webhook when they begin to hang, and when they are well again.

    python3 watch_webhook.py URL [WHAT]... [--every S]        WHAT: pids, labels; all engines here without

It stops nothing but for the milliseconds of a copy. A hang is posted when it was seen twice.
"""

import argparse
import json
import time
import urllib.request

import gdbext


def look(what):
    """-> (kind, text, fields) of what is seen now."""
    try:
        verdict = gdbext.ranks(*what, live=True).hang()
    except gdbext.GdbextError as e:
        return "gone", str(e), {}
    kind = verdict.kind if verdict.hung else "well" if verdict.hung is False else "unknown"
    return kind, str(verdict), {"culprits": verdict.culprits, "evidence": verdict.evidence}


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30):
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("url")
    parser.add_argument("what", nargs="*")
    parser.add_argument("--every", type=float, default=30.0, metavar="S", help="seconds between two looks")
    options = parser.parse_args()
    posted = before = "well"
    while True:
        kind, text, fields = look(options.what)
        if kind not in (posted, "unknown") and kind in (before, "well", "gone"):
            post(options.url, {"text": text, "verdict": kind, **fields})
            posted = kind
        if kind == "gone":
            break
        before = kind
        time.sleep(options.every)


if __name__ == "__main__":
    main()
