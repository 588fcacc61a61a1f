"""A folder with modules of somebody else, which say that they were run."""

import os

SAYS = "import os\nopen(os.path.dirname(os.path.abspath(__file__)) + '/RAN-' + __name__, 'w').close()\nraise ImportError\n"


def workspace(folder, names):
    """Makes a folder below `folder` with a module of every name. -> its path"""
    made = folder / "workspace"
    made.mkdir()
    for name in names:
        (made / f"{name}.py").write_text(SAYS)
    return made


def ran(folder):
    """The names of its modules that were run."""
    return sorted(name[len("RAN-") :] for name in os.listdir(folder) if name.startswith("RAN-"))
