"""`pip install .`: the package gdbext with its layouts and, as gdbext/gdbinit, the gdb scripts of gdbinit.d."""

import os
import re

from setuptools import find_packages, setup

HERE = os.path.dirname(os.path.abspath(__file__))


def read(name):
    path = os.path.join(HERE, name)
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8") as f:
        return f.read()


setup(
    name="gdbext",
    version=re.search(r'^__version__ = "(.+)"', read(os.path.join("gdbext", "__init__.py")), re.M)[1],
    description="A GDB / cuda-gdb extension pack for LLM inference engines",
    long_description=read("README.md"),
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.8",
    packages=find_packages(include=["gdbext", "gdbext.*"]) + ["gdbext.gdbinit"],
    package_dir={"gdbext.gdbinit": "gdbinit.d"},
    package_data={"gdbext": ["layouts/*.json", "layouts/**/*.json", "kernels/*.json"], "gdbext.gdbinit": ["*.gdb"]},
    entry_points={"console_scripts": ["gdbext=gdbext.__main__:entry"]},
    zip_safe=False,
)
