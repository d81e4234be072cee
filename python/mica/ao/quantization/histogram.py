"""HistogramObserver: bounds that cut off rare extremes where that makes the rounding of all others finer."""

from mica import _C
from mica._functions import quantization_schemes as schemes
from mica.ao.quantization.observer import _LEAST_SCALE, UniformQuantizationObserverBase

_FINER = 16  # parts of a bin that are moved on their own when the bounds widen
_TAIL = 1e-5  # the part of all numbers that one step of the search cuts off


class HistogramObserver(UniformQuantizationObserverBase):
    """Keeps a histogram of the numbers, and the bounds within which rounding and cutting off cost least together."""

    def __init__(
        self,
        bins=2048,
        dtype=_C.quint8,
        qscheme=schemes.per_tensor_affine,
        reduce_range=False,
        quant_min=None,
        quant_max=None,
        factory_kwargs=None,
        eps=_LEAST_SCALE,
        is_dynamic=False,
        **kwargs,
    ):
        if qscheme not in (schemes.per_tensor_affine, schemes.per_tensor_symmetric):
            raise NotImplementedError(
                "HistogramObserver's qscheme only support torch.per_tensor_symmetric and torch.per_tensor_affine."
            )
        if is_dynamic:
            raise NotImplementedError("HistogramObserver doesn't support dynamic quantization")
        super().__init__(dtype, qscheme, reduce_range, quant_min, quant_max, factory_kwargs, eps)
        self.bins, self.dst_nbins = bins, 2**32 if dtype in (_C.qint32, _C.int32) else 256
        self.register_buffer("histogram", _C.zeros(bins))
        self.register_buffer("min_val", _C.tensor(float("inf")))
        self.register_buffer("max_val", _C.tensor(float("-inf")))

    def forward(self, x):
        if x.numel() == 0:
            return x
        seen = x.detach().to(self.min_val.dtype)
        low, high = (float(v) for v in _C.aminmax(seen))
        if not (abs(low) < float("inf") and abs(high) < float("inf")):
            raise ValueError(f"histogram observer: the numbers must be finite, but range from {low} to {high}")
        if bool(self.min_val > self.max_val):
            counts = _C.histc(seen, self.bins, low, high)
        else:
            old_low, old_high = float(self.min_val), float(self.max_val)
            low, high = min(low, old_low), max(high, old_high)
            counts = _C.histc(seen, self.bins, low, high) + self._moved(old_low, old_high, low, high)
        self.histogram.resize_(counts.shape).copy_(counts)
        self.min_val.copy_(_C.tensor(low)), self.max_val.copy_(_C.tensor(high))
        return x

    def _moved(self, old_low, old_high, low, high):
        """The histogram, counted in the bins of wider bounds; a bin's numbers are taken to lie evenly in it."""
        if (old_low, old_high) == (low, high):
            return self.histogram
        if old_low == old_high:
            place = min(int((old_low - low) / (high - low) * self.bins), self.bins - 1)
            moved = _C.zeros_like(self.histogram)
            moved[place] = self.histogram.sum()
            return moved
        parts = (self.histogram / _FINER).repeat_interleave(_FINER)
        width = (old_high - old_low) / (self.bins * _FINER)
        middles = _C.linspace(old_low, old_high, self.bins * _FINER + 1)[:-1] + width / 2
        edges = _C.linspace(low, high, self.bins + 1)
        places = (_C.bucketize(middles, edges, right=True) - 1).clamp(0, self.bins - 1)
        return _C.bincount(places, weights=parts, minlength=self.bins)

    def _error(self, first, last, width):
        """What rounding costs, as the sum of its squares, if the bins from first to last are spread over all steps."""
        step = width * (last - first + 1) / self.dst_nbins
        if step == 0:
            return 0.0
        begin = (_C.arange(self.bins) - first) * width
        end = begin + width
        to_begin = (begin / step).floor().clamp(0, self.dst_nbins - 1)
        to_end = (end / step).floor().clamp(0, self.dst_nbins - 1)
        density, half = self.histogram / width, step / 2

        def squares(start, stop):
            return density * (stop**3 - start**3) / 3

        half_tensor = _C.full((self.bins,), half)
        cost = squares(begin - (to_begin + 0.5) * step, half_tensor)
        cost = cost + (to_end - to_begin - 1) * squares(-half_tensor, half_tensor)
        cost = cost + squares(-half_tensor, end - (to_end * step + half))
        return float(cost.sum())

    def _bounds(self):
        """Cut the tails off, the longer one first, as long as that lowers the cost."""
        low, width = float(self.min_val), (float(self.max_val) - float(self.min_val)) / self.bins
        sums = self.histogram.cumsum(0).tolist()
        total, first, last = float(self.histogram.sum()), 0, self.bins - 1
        alpha, beta, least = 0.0, 1.0, float("inf")
        while alpha < beta:
            next_alpha, next_beta = alpha + _TAIL, beta - _TAIL
            left, right = first, last
            while left < last and sums[left] < next_alpha * total:
                left += 1
            while right > first and sums[right] > next_beta * total:
                right -= 1
            next_first, next_last = first, last
            if left - first > last - right:
                next_first, alpha = left, next_alpha
            else:
                next_last, beta = right, next_beta
            if (next_first, next_last) == (first, last):
                continue
            cost = self._error(next_first, next_last, width)
            if cost > least:
                break
            least, first, last = cost, next_first, next_last
        return _C.tensor(low + width * first), _C.tensor(low + width * (last + 1))

    def calculate_qparams(self):
        """(scale, zero_point) for what has been seen."""
        unseen = bool(self.min_val > self.max_val)
        low, high = (self.min_val, self.max_val) if unseen else self._bounds()
        scale, zero = self._qparams(low, high)
        return scale.reshape(-1), zero.reshape(-1)

    def reset_min_max_vals(self):
        """Forget the values that were observed."""
        self.histogram.zero_(), self.min_val.fill_(float("inf")), self.max_val.fill_(float("-inf"))

    def extra_repr(self):
        return f"min_val={self.min_val}, max_val={self.max_val}"
