"""`inspect.ranges(model)`: which layers leave the range of a smaller format, and the loss scale that would hold."""

import math

import mica
from mica.inspect._terminal import table

_KINDS = ("weights", "activations", "gradients")
_LOWEST = -160  # exponents below are counted with it; float32's smallest number is 2 ** -149


def _limits(dtype):
    """(largest value that does not overflow, smallest normal, exponent of the smallest number) of a format."""
    info = mica.finfo(dtype)
    # What lies less than half a step above the largest number is rounded down to it.
    edge = info.max + info.eps * 2 ** math.floor(math.log2(info.max)) / 2
    smallest = math.log2(info.smallest_normal) + math.log2(info.eps)
    return edge, info.smallest_normal, round(smallest)


class _Spread:
    """The sizes of one layer's numbers of one kind, over all the calls that were seen."""

    def __init__(self, layer, module, kind, dtypes):
        self.layer, self.module, self.kind = layer, module, kind
        self.count = self.nonzero = self.not_finite = 0
        self.largest, self.smallest = 0.0, math.inf
        self.lost = {dtype: [0, 0, 0] for dtype in dtypes}  # overflow, underflow, subnormal
        self.exponents = {}

    def add(self, tensor):
        with mica.no_grad():
            x = tensor.detach().abs().to(mica.float64 if tensor.dtype == mica.float64 else mica.float32).reshape(-1)
            self.count += x.numel()
            fine = x[x.isfinite()]
            self.not_finite += x.numel() - fine.numel()
            x = fine[fine > 0]
            self.nonzero += x.numel()
            if not x.numel():
                return
            self.largest = max(self.largest, x.max().item())
            self.smallest = min(self.smallest, x.min().item())
            exponents, counts = mica.unique((mica.frexp(x)[1] - 1).clamp(min=_LOWEST), return_counts=True)
            for exponent, count in zip(exponents.tolist(), counts.tolist(), strict=True):
                self.exponents[exponent] = self.exponents.get(exponent, 0) + count
            for dtype, lost in self.lost.items():
                edge, normal, _ = _limits(dtype)
                gone = x.to(dtype).to(x.dtype) == 0
                lost[0] += (x >= edge).sum().item()
                lost[1] += gone.sum().item()
                lost[2] += ((x < normal) & ~gone).sum().item()

    def to_dict(self):
        shares = {}
        for dtype, (over, under, subnormal) in self.lost.items():
            total = max(1, self.nonzero)
            shares[str(dtype).rpartition(".")[2]] = {
                "overflow": over / total,
                "underflow": under / total,
                "subnormal": subnormal / total,
            }
        return {
            "layer": self.layer,
            "module": self.module,
            "kind": self.kind,
            "numbers": self.count,
            "nonzero": self.nonzero,
            "not_finite": self.not_finite,
            "largest": self.largest,
            "smallest": self.smallest if self.nonzero else 0.0,
            "formats": shares,
        }


class ranges:
    """Records the sizes of a model's weights, activations and gradients in a `with` block, layer by layer.

    The model runs in the precision that it has; nothing is cast but copies. `dtypes` are the formats that are asked about.
    """

    def __init__(self, model, dtypes=None):
        if not isinstance(model, mica.nn.Module):
            raise TypeError(f"ranges(): the model is a Module, not {type(model).__name__}")
        self.model = model
        self.dtypes = tuple(dtypes or (mica.float16, mica.bfloat16, mica.float8_e4m3fn, mica.float8_e5m2))
        for dtype in self.dtypes:
            if not (isinstance(dtype, mica.dtype) and dtype.is_floating_point):
                raise TypeError(f"ranges(): {dtype} is not a floating-point dtype")
        self._spreads, self._hooks = {}, []

    def _spread(self, name, module, kind):
        key = (name, kind)
        if key not in self._spreads:
            self._spreads[key] = _Spread(name or "(model)", type(module).__name__, kind, self.dtypes)
        return self._spreads[key]

    def _watch(self, name, module):
        def counted(grad):
            if grad is not None:
                self._spread(name, module, "gradients").add(grad)

        def seen(_, __, output):
            for tensor in _floating(output):
                self._spread(name, module, "activations").add(tensor)
                if tensor.requires_grad:
                    tensor.register_hook(counted)

        self._hooks.append(module.register_forward_hook(seen))

    def __enter__(self):
        self._spreads = {}
        for name, module in self.model.named_modules():
            own = list(module.parameters(recurse=False))
            if not own and any(True for _ in module.children()):
                continue  # its output is that of its children
            self._watch(name, module)
            for parameter in own:
                if parameter.is_floating_point():
                    self._spread(name, module, "weights").add(parameter)
                if parameter.requires_grad:
                    self._hooks.append(
                        parameter.register_hook(
                            lambda grad, name=name, module=module: self._spread(name, module, "gradients").add(grad)
                        )
                    )
        return self

    def __exit__(self, *exception):
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def layers(self, kind=None):
        """A dict for each layer and kind: its sizes, and the share of its numbers that each format loses."""
        if kind is not None and kind not in _KINDS:
            raise ValueError(f'layers(): kind is "weights", "activations" or "gradients", not {kind!r}')
        return [s.to_dict() for s in self._spreads.values() if kind in (None, s.kind)]

    def breaks(self, dtype):
        """The layers of which numbers overflow in a format, the worst first, then those that lose the most to zero."""
        name = str(self._known(dtype)).rpartition(".")[2]
        rows = [r for r in self.layers() if r["formats"][name]["overflow"] or r["formats"][name]["underflow"]]
        return sorted(rows, key=lambda r: (-r["formats"][name]["overflow"], -r["formats"][name]["underflow"]))

    def _known(self, dtype):
        if dtype not in self.dtypes:
            raise ValueError(f"ranges(): {dtype} was not asked about; pass it in dtypes")
        return dtype

    def _underflow(self, dtype, scale):
        """The share of all gradients that become zero at this scale."""
        smallest = _limits(dtype)[2]
        spreads = [s for s in self._spreads.values() if s.kind == "gradients"]
        total = sum(s.nonzero for s in spreads)
        shift = math.log2(scale)
        # Half of the smallest number and what is below is rounded to zero.
        gone = sum(n for s in spreads for e, n in s.exponents.items() if e + shift < smallest - 1)
        return gone / total if total else 0.0

    def loss_scale(self, dtype):
        """The scale for the loss: a power of two that loses no gradient to infinity and as few as possible to zero.

        1.0 where nothing is lost without one. None where no gradient was seen.
        """
        self._known(dtype)
        spreads = [s for s in self._spreads.values() if s.kind == "gradients" and s.nonzero]
        if not spreads:
            return None
        # One bit is left free, for gradients of later steps that are larger.
        limit = mica.finfo(dtype).max / max(s.largest for s in spreads) / 2
        most = 2.0 ** math.floor(math.log2(limit))
        if most >= 1 and self._underflow(dtype, 1.0) == 0:
            return 1.0
        # Of the scales that lose no more than the largest one does, the smallest: it leaves the most room.
        least = self._underflow(dtype, most)
        scale = most
        while scale / 2 >= min(1.0, most) and self._underflow(dtype, scale / 2) <= least:
            scale /= 2
        return scale

    def to_dict(self):
        """Everything as plain values."""
        scales = {}
        for dtype in self.dtypes:
            scale = self.loss_scale(dtype)
            scales[str(dtype).rpartition(".")[2]] = {
                "loss_scale": scale,
                "zero_without": self._underflow(dtype, 1.0),
                "zero_with": self._underflow(dtype, scale) if scale else 0.0,
            }
        return {"layers": self.layers(), "formats": scales}

    def table(self, row_limit=40):
        """The layers as text: where a format breaks, and the loss scales."""

        def said(lost):
            parts = [f"{100 * lost[k]:.3g} % {w}" for k, w in (("overflow", "inf"), ("underflow", "zero")) if lost[k]]
            return ", ".join(parts) or "."

        rows = [
            (r["layer"], r["module"], r["kind"], f"{r['smallest']:.2g}", f"{r['largest']:.3g}")
            + tuple(said(r["formats"][str(d).rpartition(".")[2]]) for d in self.dtypes)
            for r in self.layers()[:row_limit]
        ]
        names = [str(d).rpartition(".")[2] for d in self.dtypes]
        text = table(("layer", "module", "kind", "smallest", "largest", *names), rows, "<<<>>" + "<" * len(names))
        for dtype, name in zip(self.dtypes, names, strict=True):
            scale = self.loss_scale(dtype)
            if scale is not None:
                before, after = 100 * self._underflow(dtype, 1.0), 100 * self._underflow(dtype, scale)
                text += f"\n{name}: loss scale {int(scale) if scale >= 1 else scale:g}; gradients that become zero {before:.3g} % without, {after:.3g} % with"
        return text

    def __str__(self):
        return self.table()

    __repr__ = __str__


def _floating(value):
    from mica.inspect._estimate import _tensors

    return [t for t in _tensors(value) if t.is_floating_point() and t.numel()]
