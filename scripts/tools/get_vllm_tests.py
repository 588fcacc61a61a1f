"""Fetches vLLM's own tests for the release that the tests run, out of its source distribution.

  scripts/get-vllm-tests [VERSION]      default: the version that the environment of the tests has

They land in the cache folder under vllm-tests/VERSION: the .py files of the distribution's folder `tests`. Nothing of them is
built or installed. tests/engines/test_vllm_own_tests.py runs them and asks llm-kv check and llm-requests after each."""

import os
import shutil
import tempfile

from .environments import cache_folder, environment
from .get_releases import download, unpack
from .say import Failed, ends_with, say
from .try_newest import tested


def folder_of(version):
    return os.path.join(cache_folder(), "vllm-tests", version)


def fetch(version=None):
    """Unpacks them into the cache folder. -> the folder whose subfolder `tests` holds them."""
    version = version or tested("vllm")
    home = folder_of(version)
    if os.path.isdir(home):
        return home
    with tempfile.TemporaryDirectory() as scratch:
        path = download(f"vllm-{version}", scratch)
        shutil.rmtree(home + ".new", ignore_errors=True)
        count = unpack(path, "tests", home + ".new")
    if not count:
        raise Failed(f"get-vllm-tests: the source distribution of vLLM {version} holds no tests")
    os.rename(home + ".new", home)
    return home


def main(words):
    if words[:1] in (["-h"], ["--help"]):
        print(__doc__.strip())
        return 0
    environment("tests")
    say(fetch(*words[:1]))
    return 0


if __name__ == "__main__":
    ends_with(main)
