"""How many floating-point operations a program runs, by module and by operation.

Products, convolutions and attention are counted, a multiplication and an addition as two; the rest is left out, as in torch.
"""

import warnings
from collections import defaultdict

from mica.utils._flop_rules import (  # noqa: F401 - torch has all of these here
    addmm_flop,
    baddbmm_flop,
    bmm_flop,
    conv_backward_flop,
    conv_flop,
    conv_flop_count,
    flop_registry,
    get_shape,
    mm_flop,
    register_flop_formula,
    sdpa_backward_flop,
    sdpa_backward_flop_count,
    sdpa_flop,
    sdpa_flop_count,
    shape_wrapper,
)
from mica.utils._python_dispatch import TorchDispatchMode
from mica.utils.module_tracker import ModuleTracker

__all__ = ["FlopCounterMode", "register_flop_formula"]
suffixes = ["", "K", "M", "B", "T"]


def get_suffix_str(number):
    """The letter under which a number is shown: with one digit more than three at most."""
    return suffixes[max(0, min(len(suffixes) - 1, (len(str(number)) - 2) // 3))]


def convert_num_with_suffix(number, suffix):
    """The number in thousands, millions and so on."""
    return f"{number / 1000 ** suffixes.index(suffix):.3f}{suffix}"


def convert_to_percent_str(num, denom):
    """The share of a whole."""
    return f"{num / denom:.2%}" if denom else "0%"


class _CountingMode(TorchDispatchMode):
    supports_higher_order_operators = True

    def __init__(self, counter):
        super().__init__()
        self._counter = counter

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        return self._counter._count_flops(getattr(func, "_overloadpacket", func), out, args, kwargs)


class FlopCounterMode:
    """Counts the floating-point operations of a `with` block, and prints a table of them when it ends.

    Backward passes are counted with the modules whose forward they differentiate. `custom_mapping` has formulas by
    operator, of shapes: formula(*args, out_shape, **kwargs).
    """

    def __init__(self, mods=None, depth=2, display=True, custom_mapping=None):
        if mods is not None:
            warnings.warn("mods argument is not needed anymore, you can stop passing it", stacklevel=2)
        self.depth, self.display, self.mode = depth, display, None
        self.flop_counts = defaultdict(lambda: defaultdict(int))
        own = {k: v if getattr(v, "_get_raw", False) else shape_wrapper(v) for k, v in (custom_mapping or {}).items()}
        self.flop_registry = {**flop_registry, **own}
        self.mod_tracker = ModuleTracker()

    def __enter__(self):
        self.flop_counts.clear()
        self.mod_tracker.__enter__()
        self.mode = _CountingMode(self)
        self.mode.__enter__()
        return self

    def __exit__(self, *exception):
        self.mode.__exit__(*exception)
        self.mode = None
        self.mod_tracker.__exit__()
        if self.display:
            print(self.get_table(self.depth))
        return False

    def _count_flops(self, func_packet, out, args, kwargs):
        formula = self.flop_registry.get(func_packet)
        if formula is not None:
            flops = formula(*args, **kwargs, out_val=out)
            for module in set(self.mod_tracker.parents):
                self.flop_counts[module][func_packet] += flops
        return out

    # ---- results
    def get_total_flops(self):
        """The operations of the whole block."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self):
        """Module -> operator -> count; "Global" stands for all."""
        return {module: dict(counts) for module, counts in self.flop_counts.items()}

    def get_table(self, depth=None):
        """The counts as text, modules down to a depth."""
        depth = depth or self.depth or 1 << 30
        total = self.get_total_flops()
        suffix = get_suffix_str(total)

        def rows(module, indent):
            counts = self.flop_counts[module]
            yield " " * indent + module, sum(counts.values())
            for name, flops in counts.items():
                yield f"{' ' * indent} - {name}", flops

        modules = sorted(m for m in self.flop_counts if m != "Global" and m.count(".") < depth)
        covered = any(sum(self.flop_counts[m].values()) >= total for m in modules)
        table = list(rows("Global", 0)) if "Global" in self.flop_counts and not covered else []
        for module in modules:
            table += rows(module, module.count(".") + (0 if covered else 1))
        texts = [
            (name, convert_num_with_suffix(flops, suffix), convert_to_percent_str(flops, total))
            for name, flops in table
        ]
        return _as_text(texts or [("Global", "0", "0%")])


def _as_text(rows):
    """The rows under their headings: by the package tabulate, as torch does, or in the same form without it."""
    headings = ("Module", "FLOP", "% Total")
    try:
        import tabulate
    except ImportError:
        # tabulate prints numbers as short as possible.
        lines = [headings, *((a, b.removesuffix(".000") if b.endswith(".000") else b, c) for a, b, c in rows)]
        # It makes a column at least two characters wider than its heading.
        widths = [max(len(line[i]) + (2 if n == 0 and i else 0) for n, line in enumerate(lines)) for i in range(3)]
        texts = [f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}".rstrip() for a, b, c in lines]
        texts.insert(1, "  ".join("-" * width for width in widths))
        return "\n".join(texts)
    tabulate.PRESERVE_WHITESPACE = True
    return tabulate.tabulate(rows, headers=headings, colalign=("left", "right", "right"))
