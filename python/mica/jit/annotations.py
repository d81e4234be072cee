"""The types of annotations that TorchScript knows."""

from typing import Any, Dict, List, Optional, Tuple, Union  # noqa: F401, UP035


class _BroadcastingList:
    """BroadcastingList2[int]: a number, or so many."""

    def __getitem__(self, types):
        return None


for _size in range(1, 7):
    globals()[f"BroadcastingList{_size}"] = _BroadcastingList()
