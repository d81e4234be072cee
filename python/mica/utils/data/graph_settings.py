"""Settings of all pipes of a graph: which shard, whether to shuffle, with what seeds."""

import inspect
import warnings

from mica.utils.data.datapipes.iter.sharding import SHARDING_PRIORITIES
from mica.utils.data.graph import traverse_dps
from mica.utils.data.sampler import random_seed

__all__ = [
    "apply_random_seed",
    "apply_sharding",
    "apply_shuffle_seed",
    "apply_shuffle_settings",
    "get_all_graph_pipes",
]


def get_all_graph_pipes(graph):
    """Every pipe of a graph, once."""
    found = {}

    def add(graph):
        for number, (pipe, below) in graph.items():
            if number not in found:
                found[number] = pipe
                add(below)

    add(graph)
    return list(found.values())


def _has_methods(pipe, *names):
    return all(inspect.ismethod(getattr(pipe, name, None)) for name in names)


def apply_sharding(datapipe, num_of_instances, instance_id, sharding_group=SHARDING_PRIORITIES.DEFAULT):
    """Let each sharding pipe of the graph keep the samples of one instance."""

    def shard(graph, above):
        for pipe, below in graph.values():
            applied = above
            if _has_methods(pipe, "apply_sharding"):
                if above is not None:
                    raise RuntimeError(
                        "Sharding twice on a single pipeline is likely unintended and will cause data loss. Sharding "
                        f"already applied to {above} while trying to apply to {pipe}"
                    )
                if len(inspect.signature(pipe.apply_sharding).parameters) < 3:
                    pipe.apply_sharding(num_of_instances, instance_id)
                else:
                    pipe.apply_sharding(num_of_instances, instance_id, sharding_group=sharding_group)
                applied = pipe
            shard(below, applied)

    shard(traverse_dps(datapipe), None)
    return datapipe


def apply_shuffle_settings(datapipe, shuffle=None):
    """Turn shuffling on or off in the whole graph; where there is none to turn on, a shuffler is added at the end."""
    if shuffle is None:
        return datapipe
    shufflers = [
        pipe for pipe in get_all_graph_pipes(traverse_dps(datapipe)) if _has_methods(pipe, "set_shuffle", "set_seed")
    ]
    if shuffle and not shufflers:
        warnings.warn(
            "`shuffle=True` was set, but the datapipe does not contain a `Shuffler`. Adding one at the end. Be aware "
            "that the default buffer size might not be sufficient for your task.",
            stacklevel=3,
        )
        datapipe = datapipe.shuffle()
        shufflers = [datapipe]
    for each in shufflers:
        each.set_shuffle(shuffle)
    return datapipe


def apply_random_seed(datapipe, rng):
    """Give each pipe that takes a seed one from the generator."""
    for pipe in get_all_graph_pipes(traverse_dps(datapipe)):
        if _has_methods(pipe, "set_seed"):
            pipe.set_seed(random_seed(rng))
    return datapipe


def apply_shuffle_seed(datapipe, rng):
    """The older name of apply_random_seed."""
    warnings.warn(
        "`apply_shuffle_seed` is deprecated since 1.12 and will be removed in the future releases. Please use "
        "`apply_random_seed` instead.",
        FutureWarning,
        stacklevel=2,
    )
    return apply_random_seed(datapipe, rng)
