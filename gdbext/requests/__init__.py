"""Requests over all processes of an engine: who has one now, since when, what it waits for, and whether it moves. Knows no
engine.

Readers in the engines' folders make a `Look` of each process (model.py); `join` brings looks together by request (join.py).
"""
