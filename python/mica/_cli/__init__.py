"""Subcommands of `mica`, each in a module that is imported when it is asked for."""
