"""Gathers real engines for a machine that has a GPU, torch and little else: the engine's wheels with one GPU architecture's code
left in their libraries, and the packages that they import. tests/gpu starts its engines from it.

  scripts/get-gpu-kit [vllm] [sglang] [--arch 90] [--to FOLDER] [--limit MIB]      default: both, sm_90, .gpu-kit, 54

FOLDER gets archives and a manifest, some 50 MiB; git ignores .gpu-kit. The wheels come by pip and stay in the cache folder (1
GB); nothing of them is installed or run here. scripts/run-on-gpu unpacks the kit on the other machine and runs the tests
there."""

from __future__ import annotations

import argparse
import concurrent.futures
import fnmatch
import glob
import hashlib
import io
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

from .environments import cache_folder
from .gpu_kit.contents import ENGINES, HAVE, PACKAGES, SLIM, STUBS
from .gpu_kit.fatbin import slim
from .gpu_kit.site import KIT
from .say import Failed, ends_with, say

PLATFORMS = [f"manylinux_2_{n}_x86_64" for n in (39, 35, 34, 31, 28, 27, 26, 24, 17)] + [
    "manylinux2014_x86_64",
    "manylinux1_x86_64",
]
NEEDLESS = (".pyi", "/RECORD", ".pdb", ".h.in")
TIME = 1_700_000_000  # of every packed file, so that a kit's hash follows from what it holds


def wheel(requirement: str, folder: str) -> str:
    """The path of a package's wheel for the other machine, fetched where it is not here. One by one, and without what they need:
    pip would look for releases that go together."""
    name, _, version = requirement.partition("==")
    stem = re.match(r"[\w.-]+", name).group().replace("-", "_").lower()

    def here() -> list[str]:
        names = {path: os.path.basename(path).lower().split("-") for path in sorted(glob.glob(os.path.join(folder, "*.whl")))}
        return [path for path, parts in names.items() if parts[0] == stem and version in ("", parts[1])]

    if not here():
        words = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--dest", folder]
        words += ["--python-version", HAVE["python"], "--implementation", "cp"]
        words += [f"--abi={abi}" for abi in ("cp" + HAVE["python"].replace(".", ""), "abi3", "none")]
        words += [f"--platform={platform}" for platform in PLATFORMS]
        done = subprocess.run([*words, requirement], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode or not here():
            raise Failed(f"get-gpu-kit: {requirement}: {(done.stderr.strip() or 'pip gave no wheel').splitlines()[-1]}")
    return here()[-1]


def files_of(path: str, left_out: list[str] = ()) -> dict[str, tuple[bytes, int]]:
    """{name below an import folder: (content, mode)} of a wheel, without tests, stubs of types and what `left_out` matches."""
    found = {}
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            name, parts = info.filename, info.filename.split("/")
            if parts[0].endswith(".data"):
                name = "/".join(parts[2:]) if parts[1] in ("purelib", "platlib") else ""
            if not name or info.is_dir() or name.endswith(NEEDLESS) or any(fnmatch.fnmatch(name, p) for p in left_out):
                continue
            if {"test", "tests"} & set(parts[1:-1]) and parts[0] != "sglang":  # SGLang's own modules import from its tests
                continue
            found[name] = (archive.read(info), 0o755 if (info.external_attr >> 16) & 0o111 else 0o644)
    return found


def pack(path: str, files: dict[str, tuple[bytes, int]]) -> None:
    """Writes a .tar.xz."""
    with lzma.open(path, "wb", preset=6) as out, tarfile.open(fileobj=out, mode="w|") as archive:
        for name, (data, mode) in sorted(files.items()):
            info = tarfile.TarInfo(name)
            info.size, info.mode, info.mtime = len(data), mode, TIME
            archive.addfile(info, io.BytesIO(data))


def part(name: str, arch: int, cache: str) -> tuple[dict[str, tuple[bytes, int]], dict[str, str]]:
    """({name: (content, mode)}, {package: version}) of "common" packages, or of an engine with its packages."""
    files, versions = {}, {}
    requirements, left_out = ENGINES.get(name, ([], []))
    for requirement in [*PACKAGES[name], *requirements]:
        path = wheel(requirement, cache)
        package, version = os.path.basename(path).split("-")[:2]
        versions[package] = version
        files.update(files_of(path, left_out if requirement in requirements else ()))
    for path, kernels in SLIM.items():
        if path in files:
            data = bytearray(files[path][0])
            say(f"  {path}: {slim(data, arch, kernels)}")
            files[path] = (bytes(data), 0o755)
    files.update({path: (text.encode(), 0o644) for path, text in STUBS.get(name, {}).items()})
    return files, versions


def make(folder: str, engines: list[str], arch: int) -> int:
    """Writes a kit's files into a folder that is new, empty or an older kit. -> their bytes"""
    if os.path.isdir(folder) and os.listdir(folder) and not os.path.exists(os.path.join(folder, "manifest.json")):
        raise Failed(f"get-gpu-kit: {folder} holds something that is no kit: name another folder")
    cache = os.path.join(cache_folder(), "gpu-kit")
    os.makedirs(cache, exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    manifest = {"have": HAVE, "arch": arch, "engines": engines, "packages": {}, "files": {}}
    with concurrent.futures.ProcessPoolExecutor() as workers:
        waiting = []
        for name in ["common", *engines]:
            files, versions = part(name, arch, cache)
            manifest["packages"].update(versions)
            waiting.append((name, len(files), workers.submit(pack, os.path.join(folder, f"{name}.tar.xz"), files)))
        for name, count, packed in waiting:
            packed.result()
            path = os.path.join(folder, f"{name}.tar.xz")
            with open(path, "rb") as f:
                manifest["files"][name] = {"bytes": os.path.getsize(path), "sha256": hashlib.sha256(f.read()).hexdigest()}
            say(f"{name}: {count} files, {os.path.getsize(path) / 2**20:.1f} MiB")
    with open(os.path.join(folder, "manifest.json"), "w") as f:
        json.dump(manifest, f, indent=1)
    return sum(row["bytes"] for row in manifest["files"].values())


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/get-gpu-kit", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("engines", nargs="*", metavar="ENGINE", help=" or ".join(ENGINES))
    parser.add_argument("--arch", type=int, default=90, help="the GPU's compute capability: 90 for 9.0")
    parser.add_argument("--to", default=KIT, metavar="FOLDER")
    parser.add_argument("--limit", type=float, default=54, metavar="MIB", help="it may not be larger")
    options = parser.parse_args(words)
    unknown = [name for name in options.engines if name not in ENGINES]
    if unknown:
        raise Failed(f"get-gpu-kit: there is no kit of {unknown[0]!r}; there are {', '.join(ENGINES)}")
    size = make(options.to, options.engines or list(ENGINES), options.arch) / 2**20
    say(f"{options.to}: {size:.1f} MiB")
    if size > options.limit:
        raise Failed(f"get-gpu-kit: that is more than {options.limit:g} MiB: name one engine")
    return 0


if __name__ == "__main__":
    ends_with(main)
