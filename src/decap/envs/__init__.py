"""Constrained environments on mjlab."""
