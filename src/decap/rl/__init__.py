"""Algorithms on rsl_rl and the training loop; of an environment only a Protocol."""
