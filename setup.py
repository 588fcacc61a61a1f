"""What pyproject.toml cannot say: the gdb scripts of gdbinit.d are the package gdbext.gdbinit."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["gdbext", "gdbext.*"]), "gdbext.gdbinit"],
    package_dir={"gdbext.gdbinit": "gdbinit.d"},
    package_data={
        "gdbext": ["layouts/*.json", "layouts/**/*.json", "kernels/*.json", "commands/*.txt", "timeline/*.js", "py.typed"],
        "gdbext.gdbinit": ["*.gdb"],
    },
    data_files=[("share/man/man1", ["docs/gdbext.1"])],
    zip_safe=False,
)
