"""Functions and settings of the root that are written in Python, by subject."""
