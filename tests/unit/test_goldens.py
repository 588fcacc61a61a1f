"""What the comparison of recorded answers takes for equal, and what it tells (scripts/tools/goldens.py)."""

import json

from tools import goldens


def record(folder, verdict="busy", threads=2, pid=4321, at="0x7f0012345678"):
    evidence = [f"thread {pid + n} holds the lock {at}, {n}.5 % CPU" for n in range(threads)]
    said = {"verdict": verdict, "culprits": [{"pid": pid}], "seconds": pid / 3, "evidence": evidence}
    answers = {f"llm-hang {pid}": {"status": 0, "said": json.dumps(said)}}
    folder.mkdir()
    (folder / "one.json").write_text(json.dumps({"truth": {}, "pids": [pid], "live": answers, "snapshot": {}}))
    return str(folder)


def test_pids_addresses_and_times_are_no_difference(tmp_path, capsys):
    one, other = record(tmp_path / "a"), record(tmp_path / "b", pid=12345, at="0x7f00ffff5678")
    assert goldens.compare(one, other, "", False, False) == 0
    assert "1 subjects, 1 answers, 0 differ" in capsys.readouterr().out


def test_another_value_and_another_length_are_told(tmp_path, capsys):
    base = record(tmp_path / "a")
    assert goldens.compare(base, record(tmp_path / "b", verdict="idle"), "", False, False) == 1
    assert "answer.verdict: busy -> idle" in capsys.readouterr().out
    assert goldens.compare(base, record(tmp_path / "c", threads=3), "", False, False) == 1
    assert "answer.evidence[2]: is new" in capsys.readouterr().out


def test_what_moves_in_one_tree_is_passed_over_and_nothing_beside_it(tmp_path):
    base, noise = record(tmp_path / "a"), record(tmp_path / "b", threads=3)
    assert goldens.compare(base, record(tmp_path / "c", threads=4), noise, False, False) == 0
    assert goldens.compare(base, record(tmp_path / "d", threads=4, verdict="idle"), noise, False, False) == 1
    assert not goldens.moved("answer.verdicts[0].kind", ("answer.verdict",))
