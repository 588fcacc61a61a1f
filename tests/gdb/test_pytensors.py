"""pytensors against what the process says of its own tensors: all found, storages counted once, owners that pytensor takes."""

import json
import sys

import pytest
from harness.subjects import SUBJECTS, running, spawned
from harness.tensors import LAZY, same_as_truth

from gdbext.access.proc import ProcTarget
from gdbext.answers.tensor_list import difference, group_of
from gdbext.commands.pytensor import PyTensor
from gdbext.commands.pytensors import PyTensors
from gdbext.cpython.expressions import evaluate
from gdbext.cpython.runtime import open_runtime
from gdbext.errors import GdbextError
from gdbext.session.session import Session


class Live:
    def __init__(self, process, truth):
        self.process, self.pid, self.truth = process, process.pid, truth

    def ask(self, line="", command=PyTensors):
        return command().answer(Session(), command.parse(f"{line} -on {self.pid}"))


@pytest.fixture(scope="module")
def live(torch_python, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("live") / "truth.json")
    line = [torch_python, "-W", "ignore", f"{SUBJECTS}/tensors_live.py", path]
    with spawned(line, ready="ready") as process:
        with open(path) as f:
            yield Live(process, json.load(f))


def test_every_live_tensor_is_listed_with_what_torch_says_of_it(live):
    data = json.loads(live.ask("-json").json("pytensors"))
    assert data["schema"] == "pytensors/1" and data["partial"] == ["unstopped"]
    _, extra = same_as_truth(data, live.truth)
    assert not extra, extra
    assert len(data["tensors"]) > 20


def test_storages_are_counted_once(live):
    data = live.ask().data
    assert data["total_bytes"] == live.truth["total"]
    assert sum(d["bytes"] for d in data["devices"]) == live.truth["total"]
    assert sum(o["bytes"] for o in data["owners"]) == live.truth["total"]


def test_each_owner_is_a_path_that_pytensor_takes(live):
    data = live.ask().data
    without = [int(r["address"]) for r in data["tensors"] if r["owner"] is None]
    assert sorted(without) == sorted(live.truth["without_path"])
    assert "__main__:expanded" in [r["shares_with"] for r in data["tensors"]]
    rt = open_runtime(ProcTarget(live.pid))
    frame = rt.frames(rt.threads()[0])[0]
    for row in data["tensors"]:
        if row["owner"]:
            assert evaluate(rt, row["owner"], frame).address == row["address"], row["owner"]
    (some,) = [r for r in data["tensors"] if r["owner_frame"]]
    assert (some["owner_shown"], some["owner_frame"]) == ("outer['only']", "frame 1, main")
    assert live.ask(some["owner"], PyTensor).data["address"] == some["address"]
    shown = {r["owner_shown"] for r in data["tensors"]}
    assert {
        "__main__:model.layers._modules['1'].weight",
        "__main__:model.mask",
        "__main__:model.tables['kv'][0]",
        "__main__:model.tables[3][0]",
        "__main__:slotted.kept",
        "__main__:slotted.kept.scale",
        "__main__:kept",
        "__main__:frozen[4]",
    } <= shown
    assert any(r["owner"] == "local[0]" for r in data["tensors"])


def test_filters_and_orders(live):
    rows = live.ask("-min-bytes 1000").data["tensors"]
    assert (
        rows
        and all(r["bytes"] >= 1000 for r in rows)
        and [r["bytes"] for r in rows] == sorted((r["bytes"] for r in rows), reverse=True)
    )
    assert [r["device"] for r in live.ask("-device meta").data["tensors"]] == ["meta"]
    assert live.ask("-device cuda").data["tensors"] == []
    addresses = [int(r["address"]) for r in live.ask("-sort address").data["tensors"]]
    assert addresses == sorted(addresses)
    with pytest.raises(GdbextError, match="-sort is one of"):
        live.ask("-sort size")


def test_nan_is_found_and_not_what_only_shares_its_storage(live):
    pytest.importorskip("numpy")
    every = live.ask("-nan -all").data["tensors"]
    assert sorted(int(r["address"]) for r in every) == sorted(live.truth["nan"])
    assert all(r["nan"] == 1 for r in every)
    as_json = json.loads(live.ask("-nan -json").json("pytensors"))  # programs ask for all
    assert len(as_json["tensors"]) == len(every) > 1
    assert as_json["partial"][0] == "unstopped" and "values cannot be read" in as_json["partial"][1]
    first = live.ask("-nan").data["tensors"]
    assert len(first) == 1 and int(first[0]["address"]) in live.truth["nan"]


def test_people_get_a_table_and_totals(live):
    text = live.ask().to_text()
    assert "__main__:model.tables['kv'][0]" in text and "128.0 KiB" in text and "storages on cpu" in text and "by owner" in text


def test_in_gdb_live_and_on_a_core_the_list_is_the_same(gdb, live, tmp_path):
    core = str(tmp_path / "core")
    for commands, arguments in (
        ([f"generate-core-file {core}", "pytensors -json"], ["-p", str(live.pid)]),
        (["pytensors -json"], ["-c", core]),
    ):
        data = gdb(commands, arguments, before=LAZY).json()
        same_as_truth(data, live.truth)
        assert data["partial"] == [] and data["total_bytes"] == live.truth["total"]


def test_a_leak_shows_against_a_saved_listing(live, tmp_path):  # the last one: it changes the subject
    saved = str(tmp_path / "before.json")
    live.ask(f"-save {saved}")
    with pytest.raises(GdbextError, match="there already"):
        live.ask(f"-save {saved}")
    assert live.ask(f"-diff {saved}").data["diff"]["groups"] == []
    live.process.stdin.write("\n")
    live.process.stdin.flush()
    assert live.process.stdout.readline() == "leaked\n"
    answer = live.ask(f"-diff {saved}")
    diff = answer.data["diff"]
    assert diff["groups"][0] == {"shape": [333], "dtype": "torch.float32", "device": "cpu", "tensors": 7, "bytes": 7 * 333 * 4}
    assert diff["total_bytes"] == 7 * 333 * 4 and len(diff["new"]) == 7 and diff["gone"] == []
    assert "__main__:leaked[3]" in answer.to_text() and "+7" in answer.to_text()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"tensors": 3}', '{"tensors": [{"address": 5}]}', "[" * 100000])
def test_a_file_that_is_no_listing_is_refused(live, tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(GdbextError, match="no listing of pytensors"):
        live.ask(f"-diff {path}")


def test_a_process_without_torch_is_said():
    with running(sys.executable, "py_gc.py") as (target, _), pytest.raises(GdbextError, match="has no torch"):
        PyTensors().answer(Session(), PyTensors.parse(f"-on {target.pid}"))


def test_owners_are_grouped_by_their_leading_steps():
    assert group_of("self.runner.kv_caches[3]") == "self.runner.kv_caches"
    assert group_of("__main__:model.layers._modules['1'].weight") == "__main__:model.layers._modules"
    assert group_of("xs[3]") == "xs" and group_of("w") == "w"


def test_an_address_used_again_for_another_shape_is_new_and_gone():
    row = {"address": "0x10", "shape": [2], "dtype": "torch.float32", "device": "cpu", "bytes": 8, "storage": "0x1"}
    other = {**row, "shape": [3], "bytes": 12}
    found = difference([row], [other])
    assert len(found["new"]) == len(found["gone"]) == 1 and sum(g["bytes"] for g in found["groups"]) == 4
