"""A kit of scripts/get-gpu-kit where it is used: what it wants of an interpreter, its files in folders to import from."""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import os
import shutil
import subprocess
import tarfile

from ..environments import cache_folder, locked
from ..say import Failed

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
KIT = os.path.join(ROOT, ".gpu-kit")  # git ignores it
_ASK = """
import importlib.metadata, json, platform, sys
found = {"python": platform.python_version()}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        found[name] = "none"
print(json.dumps(found))
"""


def manifest(kit: str = KIT) -> dict:
    """What a kit says of itself; `Failed` where there is none."""
    try:
        with open(os.path.join(kit, "manifest.json")) as f:
            return json.load(f)
    except OSError:
        raise Failed(f"no kit in {kit}: run scripts/get-gpu-kit") from None


def unsuited(python: str, kit: str = KIT) -> str:
    """Why an interpreter cannot run a kit's engines: "torch is 2.9.1, the kit wants 2.11.0"; '' where it can."""
    wanted = manifest(kit)["have"]
    done = subprocess.run([python, "-c", _ASK, *wanted], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        return f"{python} does not run"
    found = json.loads(done.stdout)
    return ", ".join(f"{name} is {found[name]}, the kit wants {v}" for name, v in wanted.items() if not found[name].startswith(v))


def unpacked(engine: str, python: str, kit: str = KIT) -> str:
    """The folder to import an engine of a kit from, unpacked into the cache folder and compiled where that was not done."""
    rows = {name: row["sha256"] for name, row in manifest(kit)["files"].items() if name in ("common", engine)}
    if engine not in rows:
        raise Failed(f"the kit in {kit} has no {engine}: run scripts/get-gpu-kit {engine}")
    name = f"{engine}-{hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()[:12]}"
    folder = os.path.join(cache_folder(), "gpu-kit-sites", name)
    with locked(folder + ".lock", f"unpacks {engine}"):
        if not os.path.isdir(folder):
            shutil.rmtree(folder + ".new", ignore_errors=True)
            paths = [os.path.join(kit, part + ".tar.xz") for part in rows]
            with concurrent.futures.ProcessPoolExecutor() as workers:
                list(workers.map(_unpack, paths, [folder + ".new"] * len(paths)))
            # else each process of an engine would
            compiling = [python, "-m", "compileall", "-q", "-j", "0", folder + ".new"]
            subprocess.run(compiling, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            os.rename(folder + ".new", folder)
    return folder


def _unpack(path: str, folder: str) -> None:
    with tarfile.open(path, "r:xz") as archive:
        archive.extractall(folder, filter="data")
