"""Benchmarks that ship with the package: what `decap bench` runs."""
