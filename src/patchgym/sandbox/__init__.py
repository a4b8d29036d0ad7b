"""Isolated execution."""
