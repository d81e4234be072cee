"""Distances between values of two models."""
