"""Bundles and boxes: one file for a whole engine, which stands wherever the file of a core may stand."""
