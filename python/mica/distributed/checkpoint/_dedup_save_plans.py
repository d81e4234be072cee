"""Lets one rank write what several have."""

from dataclasses import replace

__all__ = ["dedup_save_plans"]


def dedup_save_plans(all_plans, save_to_lowest_rank=False):
    """Let every piece be written once: by the rank that has least to write so far, or by the first that has it."""
    holders, items = {}, {}
    for rank, plan in enumerate(all_plans):
        for item in plan.items:
            holders.setdefault(item.index, []).append(rank)
            items[item.index] = item
    load, writer = [0] * len(all_plans), {}
    for index, ranks in holders.items():
        chosen = min(ranks) if save_to_lowest_rank else min(ranks, key=lambda rank: load[rank])
        writer[index] = chosen
        load[chosen] += items[index].tensor_storage_size() or 1
    return [
        replace(plan, items=[item for item in plan.items if writer[item.index] == rank])
        for rank, plan in enumerate(all_plans)
    ]
