"""Torch's compiler of graphs: there is none here, only its settings."""
