"""What pyproject.toml cannot say: the gdb scripts of gdbinit.d are the package gdbext.gdbinit; the licence, in the form that each
setuptools knows; and, where the address of the repository is given (GDBEXT_HOME_URL: scripts/release), the links of the project,
and those of README as whole addresses: a package index shows it without the other pages. An sdist remembers the address."""

import os
import re
from typing import Dict, Match

import setuptools

HERE = os.path.dirname(os.path.abspath(__file__))


def read(name: str) -> str:
    path = os.path.join(HERE, name)
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8") as f:
        return f.read()


def home() -> str:
    """The repository's address, or ""."""
    told = re.search(r"^Project-URL: Source, (\S+)$", read("PKG-INFO").partition("\n\n")[0], re.M)
    return os.environ.get("GDBEXT_HOME_URL", told[1] if told else "").rstrip("/")


def described(text: str, address: str, version: str) -> str:
    """README with its relative links below `address`, at the tag of this version."""

    def whole(found: Match[str]) -> str:
        kind = "raw" if found[1].startswith("!") else "blob"
        return f"{found[1]}({address}/{kind}/v{version}/{found[2]})"

    return re.sub(r"(!?\[[^]]*\])\((?!\w+:|#)([^)\s]+)\)", whole, text) if address else text


def links(address: str) -> Dict[str, str]:
    pages = {
        "Source": "",
        "Documentation": "/blob/main/docs/index.md",
        "Changelog": "/blob/main/CHANGELOG.md",
        "Issues": "/issues",
    }
    return {name: address + page for name, page in pages.items()} if address else {}


ADDRESS = home()
VERSION = re.search(r'__version__ = "(.+?)"', read("gdbext/__init__.py"))[1]
SPDX = int(setuptools.__version__.split(".")[0]) >= 77  # an older one, of Python 3.8, has no field for the expression

setuptools.setup(
    version=VERSION,
    packages=[*setuptools.find_packages(include=["gdbext", "gdbext.*"]), "gdbext.gdbinit"],
    package_dir={"gdbext.gdbinit": "gdbinit.d"},
    package_data={
        "gdbext": ["layouts/*.json", "layouts/**/*.json", "kernels/*.json", "commands/*.txt", "timeline/*.js", "py.typed"],
        "gdbext.gdbinit": ["*.gdb"],
    },
    data_files=[("share/man/man1", ["docs/gdbext.1"])],
    zip_safe=False,
    long_description=described(read("README.md"), ADDRESS, VERSION),
    long_description_content_type="text/markdown",
    project_urls=links(ADDRESS),
    **{"license_expression" if SPDX else "license": "MIT"},
)
