"""The library: what `import gdbext` gives (docs/library.md). It is 0.x: a name may still change, with a line in CHANGELOG."""
