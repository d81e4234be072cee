"""Functions and settings of the root that Python says, by subject."""
