"""Drives a gdb through its machine interface, as VS Code's cpptools does."""

import json
import subprocess


class Mi:
    """One gdb in MI mode, which reads libraries' symbols as they are needed (`lazily`) or always: `ask(command)` -> (result
    record, console text); `wait(start)` -> the next record that begins so."""

    def __init__(self, gdb, lazily=True):
        line = [
            gdb,
            "-nx",
            "-q",
            "--interpreter=mi",
            "-iex",
            "set debuginfod enabled off",
            "-iex",
            "set auto-load off",
            *(["-iex", "set auto-solib-add off"] if lazily else []),
        ]
        self.process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.token, self.early = 0, []

    def ask(self, command):
        self.token += 1
        self.process.stdin.write(f"{self.token}{command}\n")
        console = []
        for line in self.process.stdout:
            if line.startswith(f"{self.token}^"):
                return line.strip().partition("^")[2], "".join(console)
            if line.startswith("~"):
                console.append(json.loads(line[1:].replace("\\e", "\\u001b")))
            elif line.startswith("*"):
                self.early.append(line.strip())
        raise AssertionError("gdb ended")

    def console(self, command):
        return self.ask(f"-interpreter-exec console {json.dumps(command)}")

    def setup(self, command):
        """The result of one of launch.json's `setupCommands`: MI's own after a dash, else gdb's (MIEngine)."""
        return (self.ask if command.startswith("-") else self.console)(command)[0]

    def close(self):
        self.process.kill()
        self.process.communicate()

    def wait(self, start):
        for line in list(self.early):
            self.early.remove(line)
            if line.startswith(start):
                return line
        for line in self.process.stdout:
            if line.startswith(start):
                return line.strip()
        raise AssertionError("gdb ended")


def data(text):
    """The one line of JSON in what gdb printed; what it says of the last stop may come on the same line before it."""
    (line,) = [line for line in text.splitlines() if '{"schema"' in line]
    return json.loads(line[line.index('{"schema"') :])
