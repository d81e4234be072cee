"""How many floating-point operations a program runs, by module and by operation.

Products, convolutions and attention are counted, a multiplication and an addition as two; the rest is left out, as in torch.
"""

import warnings
from collections import defaultdict

from mica import _C
from mica.utils._flop_formulas import flop_registry, flops_of_event, node_formulas, register_flop_formula

__all__ = ["FlopCounterMode", "register_flop_formula"]

_WRAPPERS = {"aten::linear", "aten::matmul"}  # counted as the product that they choose, where they choose one


def _is_counted(event):
    """Whether the call is counted: of counted operations within one another, only the outermost is."""
    if event.name not in flop_registry:
        return False
    if event.name in _WRAPPERS and any(_has_counted(child) for child in event.cpu_children):
        return False
    above = event.cpu_parent
    while above is not None:
        if above.name in flop_registry and above.name not in _WRAPPERS:
            return False
        above = above.cpu_parent
    return True


def _has_counted(event):
    return event.name in flop_registry or any(_has_counted(child) for child in event.cpu_children)


_MODULE = "module: "


class FlopCounterMode:
    """Counts the floating-point operations of a `with` block, and prints a table of them when it ends.

    Backward passes are counted with the modules whose forward they differentiate.
    """

    def __init__(self, mods=None, depth=2, display=True, custom_mapping=None):
        if mods is not None:
            warnings.warn("mods argument is not needed anymore, you can stop passing it", stacklevel=2)
        self.depth = depth
        self.display = display
        self.custom_mapping = custom_mapping or {}
        self.flop_counts = defaultdict(lambda: defaultdict(int))
        self._names = {}
        self._hooks = []
        self._forward_of_node = {}

    # ---- counting
    def __enter__(self):
        from mica.nn.modules import module

        self.flop_counts.clear()
        for name, formula in self.custom_mapping.items():
            register_flop_formula(name)(formula)
        self._hooks = [
            module.register_module_forward_pre_hook(self._enter_module),
            module.register_module_forward_hook(self._leave_module, always_call=True),
        ]
        _C._profiler_start(shapes=True)
        return self

    def __exit__(self, *exception):
        self._collect()
        for hook in self._hooks:
            hook.remove()
        self._names.clear()
        self._forward_of_node.clear()
        if self.display:
            print(self.get_table(self.depth))
        return False

    def _enter_module(self, module, inputs):
        if module not in self._names:
            root = type(module).__name__
            for name, part in module.named_modules():
                self._names.setdefault(part, f"{root}.{name}" if name else root)
        _C._profiler_begin(_MODULE + self._names[module])

    def _leave_module(self, module, inputs, output):
        _C._profiler_end()

    def _collect(self):
        from mica.autograd.profiler_util import events_from

        for event in events_from(_C._profiler_stop()):
            self._place(event)
            flops = self._flops(event)
            if flops is not None:
                for module in ("Global", *event.modules):
                    self.flop_counts[module][event.name.replace("::", ".")] += flops

    def _flops(self, event):
        if event.kind == "node" and event.name in node_formulas:
            forward = self._forward_of_node.get(event.sequence_nr)
            return None if forward is None else node_formulas[event.name](forward.input_shapes)
        return flops_of_event(event) if _is_counted(event) else None

    def _place(self, event):
        """Notes the modules that an event ran for: those around it, or around the forward of the node that ran it."""
        parent = event.cpu_parent
        modules = () if parent is None else parent.modules
        if event.name.startswith(_MODULE):
            name = event.name.removeprefix(_MODULE)
            modules = modules if name in modules else (*modules, name)
        elif event.kind == "node":
            forward = self._forward_of_node.get(event.sequence_nr)
            modules = modules if forward is None else forward.modules
        elif event.sequence_nr >= 0:
            self._forward_of_node[event.sequence_nr] = event
        event.modules = modules

    # ---- results
    def get_total_flops(self):
        """The operations of the whole block."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self):
        """Module -> operation -> count; "Global" stands for all."""
        return {module: dict(counts) for module, counts in self.flop_counts.items()}

    def get_table(self, depth=None):
        """The counts as text, modules down to a depth."""
        depth = depth or self.depth or 1 << 30
        total = self.get_total_flops()
        suffixes = ["", "K", "M", "B", "T"]
        power = min(len(suffixes) - 1, (len(str(total)) - 1) // 3)

        def rows(module, indent):
            counts = self.flop_counts[module]
            yield " " * indent + module, sum(counts.values())
            for name, flops in counts.items():
                yield f"{' ' * indent} - {name}", flops

        modules = sorted(m for m in self.flop_counts if m != "Global" and m.count(".") < depth)
        covered = any(sum(self.flop_counts[m].values()) >= total for m in modules)
        table = [] if covered else list(rows("Global", 0))
        for module in modules:
            table += rows(module, module.count(".") + (0 if covered else 1))
        lines = [("Module", "FLOP", "% Total")]
        for name, flops in table:
            number = f"{flops / 1000**power:.3f}{suffixes[power]}" if power else str(flops)
            lines.append((name, number, f"{flops / total:.2%}" if total else "0%"))
        widths = [max(len(line[i]) for line in lines) for i in range(3)]
        texts = [f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}" for a, b, c in lines]
        texts.insert(1, "  ".join("-" * width for width in widths))
        return "\n".join(texts)
