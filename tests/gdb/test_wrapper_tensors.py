"""pytensor of tensors that keep their values in others: DTensors with mesh and placements, jagged nested tensors."""

import json
import os

import pytest
from harness.answers import answer, run
from harness.subjects import spawned

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.environ.get("GDBEXT_TEST_TORCH_PYTHON", "")
SEED = os.environ.get("GDBEXT_TEST_SEED", "5")  # of what is drawn; a failure names it

pytestmark = pytest.mark.skipif(not PYTHON, reason="no Python with torch")


@pytest.fixture(scope="module")
def wrappers():
    with spawned([PYTHON, os.path.join(HERE, "subjects", "wrapper_tensors.py"), SEED], "{") as process:
        yield process.pid, json.loads(process.said)


def test_a_dtensor_is_told_with_its_piece_its_mesh_and_its_placements(wrappers):
    pid, truth = wrappers
    for number, (shape, (sizes, names, device), placements, local) in enumerate(truth["D"]):
        told = answer(f"pytensor D[{number}] -on {pid}")
        assert told["shape"] == shape, (SEED, number)
        mesh = {"sizes": sizes, "names": names, "device": device}
        assert (told["distributed"]["mesh"], told["distributed"]["placements"]) == (mesh, placements), (SEED, number)
        text = run(f"pytensor D[{number}] -on {pid}").to_text()
        assert local in text and placements[0] in text, (SEED, number, text)


def test_the_parts_of_a_jagged_nested_tensor_are_told(wrappers):
    pid, truth = wrappers
    for number, (shapes, parts) in enumerate(truth["J"]):
        assert answer(f"pytensor J[{number}] -on {pid}")["jagged"]["shapes"] == shapes, (SEED, number)
        text = run(f"pytensor J[{number}] -on {pid}").to_text()
        assert all(part in text for part in parts[:8]), (SEED, number, text)
        assert (f"{len(parts) - 8} parts more" in text) == (len(parts) > 8)
