"""Fuzzers of the inputs of whole families of operations."""
