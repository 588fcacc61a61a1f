"""Turns the objects of the reading rooms into the shapes of the JSON answers (docs/json.md) and into text for people."""
