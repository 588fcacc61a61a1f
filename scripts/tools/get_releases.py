"""Fetches the Python sources of engine releases that this machine cannot run whole, for the tests of the KV cache.

  scripts/get-releases [ENGINE-VERSION ...]      default: one for each change of the facts' tables (RELEASES below)

Each lands in the cache folder under releases/ENGINE-VERSION: the engine's .py files as its sdist or wheel holds them. Nothing of
a release is built, installed or run: pip asks a sdist's build backend for its metadata before it keeps the file, and a backend of
ten lines, which copies the name and version out of PKG-INFO, stands in for it."""

import concurrent.futures
import glob
import os
import shutil
import subprocess
import tarfile
import tempfile
import zipfile

from .environments import cache_folder, environment
from .say import Failed, ends_with, say

RELEASES = [
    "vllm-0.6.6.post1",  # the first V1
    "vllm-0.7.3",
    "vllm-0.8.5",
    "vllm-0.9.2",
    "vllm-0.10.2",
    "vllm-0.11.2",
    "vllm-0.12.0",  # the first model runner V2
    "vllm-0.13.0",
    "vllm-0.14.0",  # 0.15 has no sdist
    "vllm-0.16.0",
    "vllm-0.18.0",
    "vllm-0.20.2",
    "vllm-0.22.0",
    "vllm-0.24.0",
    "vllm-0.26.0",  # model runner V2 by default on GPUs
    "sglang-0.4.3.post4",
    "sglang-0.4.9",
    "sglang-0.5.3",
    "sglang-0.5.9",
    "sglang-0.5.16",
]
FORM = {"vllm": "--no-binary", "sglang": "--only-binary"}  # vLLM's wheels are large and compiled; SGLang has no sdists
BACKEND = """import os
from email.parser import Parser


def prepare_metadata_for_build_wheel(folder, config_settings=None):
    with open("PKG-INFO") as f:
        said = Parser().parse(f)
    name = said["Name"] + "-" + said["Version"] + ".dist-info"
    os.mkdir(os.path.join(folder, name))
    with open(os.path.join(folder, name, "METADATA"), "w") as f:
        f.write("Metadata-Version: 2.1\\nName: " + said["Name"] + "\\nVersion: " + said["Version"] + "\\n")
    return name
"""


def folder_of(release):
    return os.path.join(cache_folder(), "releases", release)


def fetched(engine):
    """{version: folder whose subfolder `engine` is the package} of what is here already."""
    return {
        os.path.basename(f)[len(engine) + 1 :]: f for f in sorted(glob.glob(folder_of(engine + "-*"))) if not f.endswith(".new")
    }


def fetch(release):
    """Unpacks one into the cache folder. -> its folder."""
    engine, _, version = release.partition("-")
    if engine not in FORM or not version:
        raise Failed(f"get-releases: {release!r} is not one of {', '.join(n + '-VERSION' for n in FORM)}")
    home = folder_of(release)
    if os.path.isdir(home):
        return home
    with tempfile.TemporaryDirectory() as scratch:
        path = download(release, scratch)
        shutil.rmtree(home + ".new", ignore_errors=True)
        count = unpack(path, engine, home + ".new")
    if not count:
        raise Failed(f"get-releases: {release} holds no .py of a package {engine}")
    os.rename(home + ".new", home)
    return home


def download(release, scratch):
    """A release's sdist or wheel. -> its path, in the folder `scratch`."""
    engine, _, version = release.partition("-")
    backend = os.path.join(scratch, "backend", "setuptools")
    os.makedirs(backend)
    for name, text in (("__init__.py", ""), ("build_meta.py", BACKEND)):
        with open(os.path.join(backend, name), "w") as f:
            f.write(text)
    done = subprocess.run(
        [
            environment("tests"),
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            FORM[engine],
            ":all:",
            "--no-build-isolation",
            "--dest",
            scratch,
            f"{engine}=={version}",
        ],
        env={**os.environ, "PYTHONPATH": os.path.dirname(backend)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    files = glob.glob(os.path.join(scratch, engine + "-*"))
    if done.returncode or len(files) != 1:
        raise Failed(f"get-releases: {release}: {(done.stderr.strip() or 'pip gave no file').splitlines()[-1]}")
    return files[0]


def fetch_all(releases=None):
    """Those that are not here yet, three at a time. -> {release: why it could not be had}."""
    failed = {}

    def one(release):
        try:
            say(f"{release}: {fetch(release)}")
        except Failed as e:
            failed[release] = str(e)

    with concurrent.futures.ThreadPoolExecutor(3) as workers:
        list(workers.map(one, [r for r in releases or RELEASES if not os.path.isdir(folder_of(r))]))
    return failed


def unpack(path, engine, home):
    """Writes the .py files of the package out of a sdist (below its top folder) or a wheel. -> how many."""
    count = 0
    for name, read in members(path):
        parts = name.split("/")
        if parts[0] != engine or not name.endswith(".py") or ".." in parts:
            continue
        target = os.path.join(home, *parts)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as f:
            f.write(read())
        count += 1
    return count


def members(path):
    """(name below the top folder, a function that reads it) of an archive's files."""
    if path.endswith(".whl"):
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                yield info.filename, lambda: archive.read(info)
        return
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isfile():
                yield member.name.partition("/")[2], lambda: archive.extractfile(member).read()


def main(words):
    if words[:1] in (["-h"], ["--help"]):
        print(__doc__.strip())
        return 0
    environment("tests")
    failed = fetch_all(words)
    for why in failed.values():
        say(why)
    return 1 if failed else 0


if __name__ == "__main__":
    ends_with(main)
