"""Measurements of this project: declared cases, one runner (`python -m benchmarks`)."""
