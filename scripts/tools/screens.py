"""Renews the pictures of the documentation, docs/screens/NAME.svg: runs the programs of docs/exercises, asks the commands of
docs/exercises.md about them on a terminal of 88 columns, and draws what they say.

  scripts/renew-screens [NAME]...      default: all of SCREENS

The pictures are SVG with text in it. Pids and addresses are those of the run, so each run changes them: commit them when what a
command says has changed."""

from __future__ import annotations

import contextlib
import fcntl
import html
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator

from .environments import environment
from .say import Failed, say

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EXERCISES, FOLDER = os.path.join(ROOT, "docs", "exercises"), os.path.join(ROOT, "docs", "screens")
WIDTH, LINE, CHAR, PAD, BAR = 88, 18, 7.8, 14, 26  # columns; pixels of a line, a character, the margin, the title bar
# {picture: (program, seconds until it is in trouble, command)}; PID and FOLDER are the program's
SCREENS = {
    "hang": ("hung_engine.py", 3, "hang PID"),
    "dump": ("hung_engine.py", 3, "dump --subprocesses --pid PID"),
    "probe": ("hung_engine.py", 5, "probe --subprocesses PID; echo $?"),
    "top": ("leak.py", 2, "top PID -once"),
    "leak": ("leak.py", 4, "heap PID -watch 5"),
    "wrong-token": ("wrong_token.py", 1, "pytensor PID 'model.layers[1].weight' -compare FOLDER/layer1.npy"),
}
COLOURS = {
    "1": "#ffffff",
    "2": "#8b949e",
    "31": "#ff7b72",
    "32": "#7ee787",
    "33": "#e3b341",
    "34": "#79c0ff",
    "35": "#d2a8ff",
    "36": "#76e3ea",
}
SGR = re.compile(r"\x1b\[([0-9;]*)m|\x1b\]8;;[^\x1b]*\x1b\\")


@contextlib.contextmanager
def exercise(name: str, *words: str, python: str = "") -> Iterator[tuple[dict, str]]:
    """A program of docs/exercises at work: (the line of JSON that it began with, its folder). It is ended on the way out."""
    with tempfile.TemporaryDirectory(prefix="gdbext-exercise-") as folder:
        line = [python or environment("tests"), os.path.join(EXERCISES, name), *([folder] if "token" in name else []), *words]
        with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
            try:
                yield json.loads(process.stdout.readline()), folder  # type: ignore[union-attr]
            finally:
                os.killpg(process.pid, 9)


def filled(command: str, said: dict, folder: str) -> str:
    return command.replace("PID", str(said["pid"])).replace("FOLDER", folder)


def drawn(title: str, text: str) -> str:
    """The SVG of a terminal that shows `text`, whose colours are SGR sequences."""
    lines = text.rstrip("\n").split("\n")
    high = BAR + PAD + LINE * len(lines) + PAD
    wide = round(2 * PAD + CHAR * max([WIDTH, *(len(SGR.sub("", line)) for line in lines)]))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" role="img">',
        f"<title>{html.escape(title)}</title>",
        f'<rect width="{wide}" height="{high}" rx="8" fill="#0d1117"/>',
        *(f'<circle cx="{18 + 18 * n}" cy="15" r="5" fill="{c}"/>' for n, c in enumerate(("#ff5f57", "#febc2e", "#28c840"))),
        '<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,monospace" font-size="13" fill="#c9d1d9">',
    ]
    for number, line in enumerate(lines):
        spans, style, at, column = [], "", 0, 0
        for mark in [*SGR.finditer(line), None]:
            piece = line[at : mark.start() if mark else len(line)]
            for words in re.finditer(r"\S+(?: \S+)*", piece):  # browsers drop blanks: each run of words has its place
                x, long = PAD + CHAR * (column + words.start()), CHAR * len(words[0])
                spans.append(f'<tspan x="{x:.1f}" textLength="{long:.1f}"{style}>{html.escape(words[0])}</tspan>')
            column += len(piece)
            if mark:
                at = mark.end()
                if mark[1] is not None:
                    colour = COLOURS.get(mark[1])
                    style = f' fill="{colour}"' + (' font-weight="bold"' if mark[1] == "1" else "") if colour else ""
        parts.append(f'<text y="{BAR + PAD + LINE * number + 8}">{"".join(spans)}</text>')
    return "\n".join([*parts, "</g>", "</svg>", ""])


def asked(command: str, said: dict, folder: str) -> str:
    """What a terminal shows of a command: its line, then its answer in colours."""
    run = "import sys; sys.argv[0] = 'gdbext'; from gdbext.__main__ import entry; entry()"  # as the program that pip installs
    words = ["sh", "-c", f'"$0" -c "$1" {filled(command, said, folder)}', environment("tests"), run]
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, WIDTH, 0, 0))
    env = {**os.environ, "PYTHONPATH": ROOT, "TERM": "xterm-256color"}
    env.pop("NO_COLOR", None)
    with subprocess.Popen(words, cwd=EXERCISES, env=env, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, text=True) as asks:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # EIO: nobody has the other end
            while True:
                shown += os.read(ours, 65536)
        os.close(ours)
        error = asks.communicate()[1]
    if asks.returncode not in (0, 3):
        raise Failed(f"gdbext {command}: {error.strip()}")
    line = f"\x1b[2m$\x1b[m \x1b[1mgdbext {filled(command, said, 'weights')}\x1b[m\n"
    return line + shown.decode().replace("\r\n", "\n").replace(folder, "weights")


def main(words: list[str]) -> int:
    if words and words[0].startswith("-"):
        print((__doc__ or "").strip())
        return 0 if words[0] in ("-h", "--help") else 2
    os.makedirs(FOLDER, exist_ok=True)
    for name in words or SCREENS:
        program, seconds, command = SCREENS[name]
        with exercise(program) as (said, folder):
            time.sleep(seconds)
            text = asked(command, said, folder)
        with open(os.path.join(FOLDER, f"{name}.svg"), "w", encoding="utf-8") as f:
            f.write(drawn(f"gdbext {command}", text))
        say(f"docs/screens/{name}.svg")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Failed as e:
        sys.exit(f"renew-screens: {e}")
