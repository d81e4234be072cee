"""Methods of the extension's classes that are written in Python."""
