"""Robots: one description of each, and the motors that deployment needs of it."""
