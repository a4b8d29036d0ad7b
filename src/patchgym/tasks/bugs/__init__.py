"""Planting bugs: what can be changed in a source file (operators), and the source that comes of it."""
