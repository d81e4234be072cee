"""Tools from which passes are made."""
