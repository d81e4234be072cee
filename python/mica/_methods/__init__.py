"""Methods of the classes of the extension that Python says."""
