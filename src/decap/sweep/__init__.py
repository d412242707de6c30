"""Sweeps: many runs from one short file, several at a time. Imports nothing heavy."""
