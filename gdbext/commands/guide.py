"""The debugging guide, guide.txt: for each trouble the commands in order. `llm guide TOPIC` shows one."""

from __future__ import annotations

from ..package import data


def topics() -> dict[str, str]:
    """{topic: its text}; the first line says of what trouble it is."""
    parts = ("\n" + data("commands/guide.txt").decode()).split("\n=== ")[1:]
    return {topic: text.rstrip("\n") for topic, _, text in (part.partition("\n") for part in parts)}
