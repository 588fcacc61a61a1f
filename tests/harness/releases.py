"""Older releases of the engines, as scripts/get-releases gets them."""

import pytest
from tools.get_releases import fetched


def release(engine, version):
    folder = fetched(engine).get(version)
    if folder is None:
        pytest.skip(f"{engine} {version} is not here: run scripts/get-releases")
    return folder
