"""Robots: entity, joints, body groups and action scale of each."""
