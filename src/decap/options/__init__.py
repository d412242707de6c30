"""Options of commands: declared once, read by tyro, checked in one place."""
