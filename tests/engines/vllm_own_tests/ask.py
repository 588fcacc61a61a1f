"""Answers questions about an object of a process, a line of JSON each: {"pid", "address"} -> {"check": the answer of
llm-kv check, "requests": that of llm-requests, "error": the line of what could not be answered, or null}. It ends with its
input."""

import json
import sys

ROOT, HARNESS = sys.argv[1:3]
sys.path[:0] = [ROOT, HARNESS]

from answers import answer  # noqa: E402

from gdbext.errors import GdbextError  # noqa: E402


def main():
    for line in sys.stdin:
        asked = json.loads(line)
        found = {"check": None, "requests": None, "error": None}
        try:
            found["check"] = answer(f"llm-kv check -pool {asked['address']} -on {asked['pid']}")
            found["requests"] = answer(f"llm-requests -pool {asked['address']} -on {asked['pid']}")["requests"]
        except GdbextError as e:
            found["error"] = str(e)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
