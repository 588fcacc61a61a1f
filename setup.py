"""`pip install .`: the package gdbext with its layouts and, as gdbext/gdbinit, the gdb scripts of gdbinit.d."""

import os
import re
import subprocess

from setuptools import find_packages, setup

HERE = os.path.dirname(os.path.abspath(__file__))


def read(name):
    path = os.path.join(HERE, name)
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8") as f:
        return f.read()


def origin():
    """{"Source": URL} of the repository that this is a clone of, {} where that is not known or no public address."""
    try:
        said = subprocess.run(
            ["git", "remote", "get-url", "origin"], cwd=HERE, capture_output=True, text=True, timeout=10
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return {"Source": said} if re.match(r"https://[\w.-]+/", said) else {}


VALUES = ["numpy"]
PLOTS = ["numpy", "matplotlib"]
MCP = ["mcp>=2; python_version >= '3.10'"]

setup(
    name="gdbext",
    version=re.search(r'^__version__ = "(.+)"', read(os.path.join("gdbext", "__init__.py")), re.M)[1],
    description="A GDB / cuda-gdb extension pack for LLM inference engines",
    long_description=read("README.md"),
    long_description_content_type="text/markdown",
    license="MIT",
    project_urls=origin(),
    keywords="gdb cuda-gdb debugger LLM inference vLLM SGLang RTP-LLM TensorRT-LLM LMDeploy KV cache hang deadlock tensor",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Intended Audience :: Developers",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in range(8, 16)),
        "Programming Language :: Python :: Implementation :: CPython",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Software Development :: Debuggers",
    ],
    python_requires=">=3.8",
    extras_require={"values": VALUES, "plots": PLOTS, "highlight": ["pygments"], "mcp": MCP, "all": [*PLOTS, "pygments", *MCP]},
    packages=find_packages(include=["gdbext", "gdbext.*"]) + ["gdbext.gdbinit"],
    package_dir={"gdbext.gdbinit": "gdbinit.d"},
    package_data={"gdbext": ["layouts/*.json", "layouts/**/*.json", "kernels/*.json"], "gdbext.gdbinit": ["*.gdb"]},
    entry_points={"console_scripts": ["gdbext=gdbext.__main__:entry"]},
    data_files=[("share/man/man1", ["docs/gdbext.1"])],
    zip_safe=False,
)
