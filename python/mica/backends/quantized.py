"""Engines for quantized layers: there is none."""

engine = "none"
supported_engines = ["none"]
