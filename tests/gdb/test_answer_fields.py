"""Names and types of every JSON field, as they were recorded (tests/answers/fields.json, written by
scripts/tools/record_answers.py).

Fields may be added, never renamed, dropped or given another type.
"""

import json
import os

from tools import record_answers

RECORDED = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "answers", "fields.json")


def test_every_recorded_field_is_there_with_its_type(torch_python):
    with open(RECORDED) as f:
        recorded = json.load(f)
    now = record_answers.record(torch_python)
    compared, wrong = 0, []
    for command in recorded.keys() & now.keys():
        for path, kinds in recorded[command].items():
            if path == "partial[]":
                continue  # an answer may be whole
            compared += 1
            found = now[command].get(path)
            if found is None:
                wrong.append(f"{command}: {path} is gone")
            elif set(kinds) - {"null"} and set(found) - set(kinds) - {"null"}:
                wrong.append(f"{command}: {path} was {kinds}, is {found}")
    assert not wrong, "\n".join(wrong)
    assert compared > 800 and not now.keys() - recorded.keys(), "record the new lines (the top of tools/record_answers.py)"
