"""Pipelines of data: streams (iter) and indexed collections (map) that are chained by method calls."""

from mica.utils.data.datapipes import iter, map

__all__ = ["iter", "map"]
