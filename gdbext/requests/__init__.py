"""Requests over all processes of an engine: the process that has one now, since when, what it waits for, and whether it moves.
This package knows no particular engine.

Readers in the engines' folders make a `Look` of each process (engines/sightings.py); `join` brings looks together by request
(join.py).
"""
