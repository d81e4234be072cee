"""Passes, and what runs them one after the other."""
