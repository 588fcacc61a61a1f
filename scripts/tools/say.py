"""Words on the terminal while something takes long: what is being done, for how long, and where its output goes."""

import os
import re
import subprocess
import sys
import time


class Failed(Exception):
    """An expected end: the message is all that the user needs to read."""


def ends_with(main, name=""):
    """Ends this program with the status that `main(words)` returns, or with the one line of a `Failed`, after `name`."""
    try:
        sys.exit(main(sys.argv[1:]))
    except Failed as e:
        sys.exit(f"{name}: {e}" if name else str(e))


def say(text):
    print(text, flush=True)


class Progress:
    """One line that is renewed on a terminal; elsewhere a new line every `every` seconds, and one at the end."""

    def __init__(self, what, every=10.0, stream=None):
        self.what, self.every = what, every
        self.stream = stream or sys.stdout
        self.live = self.stream.isatty()
        self.start = self.shown = time.monotonic()
        self._write(f"{what} ...", final=not self.live)

    def _write(self, text, final):
        if self.live:
            width = max(20, os.get_terminal_size(self.stream.fileno()).columns - 1)
            self.stream.write("\r\x1b[K" + (text + "\n" if final else text[:width]))  # only what is renewed has to be one line
        else:
            self.stream.write(text + "\n")
        self.stream.flush()

    @property
    def elapsed(self):
        return time.monotonic() - self.start

    def tick(self, detail=""):
        """Call it often; it writes at most once a second on a terminal and once in `every` seconds elsewhere."""
        now = time.monotonic()
        if now - self.shown >= (1.0 if self.live else self.every):
            self.shown = now
            self._write(f"{self.what} ... {self.elapsed:.0f} s" + (f" ({detail})" if detail else ""), final=False)

    def done(self, text="done"):
        self._write(f"{self.what}: {text} in {self.elapsed:.0f} s", final=True)


def last_lines(path, count=12):
    try:
        with open(path, "rb") as f:
            f.seek(0, os.SEEK_END)
            f.seek(max(0, f.tell() - 64 * 1024))
            text = f.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join("    " + _short(line) for line in text.splitlines()[-count:] if line.strip())


def _short(line, limit=400):
    """A line of a log: SGLang writes all of its settings into one, which would be pages."""
    return line if len(line) <= limit else f"{line[:limit]}… ({len(line)} characters)"


def why_it_failed(path, count=12):
    """What a log tells of a failure: its first lines that name an error, since what follows from them may be long, and its
    end."""
    end = last_lines(path, count)
    named = [line for line in last_lines(path, 1 << 30).splitlines() if re.search(r"\w*(Error|Exception)\b['\")]?[:(]", line)]
    first = [line for line in dict.fromkeys(named) if line not in end][:6]
    return "\n".join([*first, "    ...", end] if first else [end])


def _latest(path):
    """The newest line of a log that tells a person something: "Downloading torch-2.13.0..."."""
    lines = [x.strip() for x in last_lines(path, 20).splitlines()]
    telling = [
        x
        for x in lines
        if x.startswith(("Collecting", "Downloading", "Installing", "Using cached", "Building", "Get:", "Setting up"))
    ]
    if not telling:
        return ""
    return "unpacking" if telling[-1].startswith("Installing collected") else telling[-1].split(" (")[0][:60]


def run_logged(what, argv, log, env=None, quiet_failure=False):
    """Run `argv` with its output appended to the file `log`, showing progress. -> exit status; `Failed` with the log's last
    lines unless `quiet_failure`. The child is ended when this process is interrupted."""
    progress = Progress(what)
    with open(log, "ab") as out:
        out.write(("\n$ " + " ".join(map(str, argv)) + "\n").encode())
        out.flush()
        child = subprocess.Popen(list(map(str, argv)), stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=env)
        try:
            while True:
                try:
                    status = child.wait(timeout=0.5)
                    break
                except subprocess.TimeoutExpired:
                    progress.tick(_latest(log))
        except BaseException:
            child.terminate()
            try:
                child.wait(timeout=10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            raise
    progress.done("done" if status == 0 else "did not work" if quiet_failure else f"FAILED (exit status {status})")
    if status and not quiet_failure:
        raise Failed(f"{what} failed; the last lines of {log}:\n{last_lines(log)}")
    return status
