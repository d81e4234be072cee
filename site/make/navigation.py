"""The order of the pages. Every page of the site has its place here; one that is forgotten ends the build."""

from __future__ import annotations

import documents

START = ["index.md", "start/install.md", "start/ten_minutes.md", "start/from_torch.md"]
GUIDES = [
    "guides/index.md",
    "guides/tensors.md",
    "guides/views.md",
    "guides/indexing.md",
    "guides/dtypes.md",
    "guides/autograd.md",
    "guides/training.md",
    "guides/data.md",
    "guides/mixed_precision.md",
    "guides/checkpoints.md",
    "guides/layouts.md",
    "guides/see_through.md",
    "guides/profiling.md",
    "guides/cuda.md",
    "guides/cpp.md",
    "guides/extensions.md",
    "guides/backend.md",
    "guides/processes.md",
    "guides/compiler.md",
]


def generated(names: set[str], folder: str) -> list[str]:
    """The pages below a folder, its index first."""
    inside = sorted(n for n in names if n.startswith(f"{folder}/") and n != f"{folder}/index.md")
    return [f"{folder}/index.md", *inside]


def tree(names: set[str]) -> list:
    sections: list = [
        {"Start": START},
        {"Lab": ["lab.md"]},
        {"Guides": GUIDES},
        {
            "Reference": [
                "reference/index.md",
                {"Operations": generated(names, "reference/operations")},
                {"Python": generated(names, "reference/python")},
                {"C++": generated(names, "reference/cpp")},
            ]
        },
        {"Benchmarks": ["benchmarks.md", *sorted(n for n in names if n.startswith("benchmarks/"))]},
        {"Packages": ["packages.md"]},
        {"Differences": ["differences.md"]},
        {"Inside": [n for n in documents.documents().values() if n.startswith("inside/")]},
    ]
    placed = set(flat(sections))
    missing, unknown = names - placed, placed - names
    if missing or unknown:
        raise SystemExit(f"site/make/navigation.py: without a place: {sorted(missing)}; not there: {sorted(unknown)}")
    return sections


def flat(part) -> list[str]:
    if isinstance(part, str):
        return [part]
    if isinstance(part, dict):
        return [n for value in part.values() for n in flat(value)]
    return [n for value in part for n in flat(value)]
