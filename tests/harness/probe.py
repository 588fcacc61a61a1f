"""Asks every command that reads of a process whose prompts hold a marker, and finds the answers, errors and files that show it
though nobody said -show-content."""

import gzip
import json
import os

from gdbext.errors import GdbextError
from gdbext.render.text import PLAIN
from harness.answers import run
from harness.command_lines import all_of

LIVE, BOTH = all_of("private_live"), all_of("private")
OF_OBJECTS = ("llm-addr {address} -on {on}", "pyprint -full {address} -on {on}", "pyprint vars({address}) -on {on}")


class Probe:
    """`holds(text)`: what of the marker a text shows, '' for nothing. `folder`: where the commands write; `types`: of the objects
    that are asked for; `names`: how many variables are asked for one by one. `asked`: how many answers there were; `leaks`:
    `[(line, what)]`."""

    def __init__(self, holds, folder, types, names=80):
        self.holds, self.folder, self.types, self.names = holds, str(folder), types, names
        self.asked, self.leaks = 0, []
        os.makedirs(self.folder, exist_ok=True)

    def said(self, line):
        """What one command answers, looked at as text and as JSON, and that JSON; {} for an error, which is looked at too."""
        self.asked += 1
        try:
            found = run(line)
        except GdbextError as e:
            self._look(line, str(e))
            return {}
        data = found.json(line.split(" ")[0])
        self._look(line, found.to_text(PLAIN))
        self._look(line + " -json", data)
        return json.loads(data)

    def _look(self, line, text):
        found = self.holds(text)
        if found:
            self.leaks.append((line, found))

    def files(self):
        """Looks at what the commands have written."""
        for name in sorted(os.listdir(self.folder)):
            path = os.path.join(self.folder, name)
            if os.path.isfile(path) and not name.endswith(".core"):
                with (gzip.open if name.endswith(".record") else open)(path, "rb") as f:
                    self._look(f"the file {name}", f.read().decode("utf-8", "replace"))
                os.unlink(path)

    def process(self, pid):
        """What is asked of a process alone."""
        for line in LIVE:
            self.said(line.format(on=pid, folder=self.folder))
        self.files()

    def memory(self, on):
        """What is asked of a process or of its snapshot or core: fixed roads; each variable by its name, and what may be
        taken out of it; objects of some types by their addresses."""
        said = {line.split()[0]: self.said(line.format(on=on, folder=self.folder)) for line in BOTH}
        self.files()
        for request in self.said(f"llm-requests {on}").get("requests", ())[:2]:
            self.said(f"llm-request {request['request_id']} -sampling -on {on}")
            self.said(f"llm-kv request {request['request_id']} -on {on}")
        for name in list(_variables(said["pybt"]))[: self.names]:
            for road in ("pyprint -any {}", "pyprint -any {}[0]", "pyprint -any {}[:3]", "pytensor -any {}"):
                self.said(f"{road.format(name)} -on {on}")
        for kind in self.types:
            found = self.said(f"pyheap -type {kind} -on {on}")
            for row in found.get("instances", ())[:2]:
                for road in OF_OBJECTS:
                    self.said(road.format(address=row["address"], on=on))
            for row in found.get("instances", ())[:1]:
                self.said(f"pyheap -path {row['address']} -on {on}")

    def shown(self, line):
        """Whether the marker is seen where it is asked for."""
        return bool(self.holds(run(f"{line} -show-content").json(line.split(" ")[0])))


def _variables(said):
    """The names in the frames of an answer of pybt, each once."""
    frames = [frame for thread in said.get("threads", ()) for frame in thread["frames"]]
    return dict.fromkeys(each["name"] for frame in frames for each in frame.get("locals", ()) if each["name"].isidentifier())
