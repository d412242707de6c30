"""Algorithms on rsl_rl; knows constraints only as tensors, and no environment."""
