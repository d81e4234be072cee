"""Attention whose linear layers can be observed."""

import warnings

from mica import _C, nn, no_grad
from mica.ao.nn.quantized.functional_modules import FloatFunctional
from mica.ao.quantization.stubs import DeQuantStub, QuantStub
from mica.nn import Linear, Parameter
from mica.nn import functional as F

__all__ = ["MultiheadAttention"]


def _padded(mask):
    return None if mask is None else F.pad(mask, (0, 1))


def _like(zeros, x):
    return _C.quantize_per_tensor(zeros, x.q_scale(), x.q_zero_point(), x.dtype) if x.is_quantized else zeros


class MultiheadAttention(nn.MultiheadAttention):
    """nn.MultiheadAttention with linear layers for query, key and value; the attention between them is float32."""

    _FLOAT_MODULE = nn.MultiheadAttention

    def __init__(
        self, embed_dim, num_heads, dropout=0.0, bias=True, add_bias_kv=False, add_zero_attn=False, kdim=None, vdim=None,
        batch_first=False, device=None, dtype=None,
    ):  # fmt: skip
        like = {"device": device, "dtype": dtype}
        super().__init__(
            embed_dim, num_heads, dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first, **like
        )
        self.linear_Q = Linear(self.embed_dim, self.embed_dim, bias=bias, **like)
        self.linear_K = Linear(self.kdim, self.embed_dim, bias=bias, **like)
        self.linear_V = Linear(self.vdim, self.embed_dim, bias=bias, **like)
        self.out_proj = Linear(self.embed_dim, self.embed_dim, bias=bias, **like)
        self.q_scaling_product = FloatFunctional()
        self.quant_attn_output, self.quant_attn_output_weights = QuantStub(), QuantStub()
        self.dequant_q, self.dequant_k, self.dequant_v = DeQuantStub(), DeQuantStub(), DeQuantStub()

    def _get_name(self):
        return "QuantizableMultiheadAttention"

    def _inner(self):
        return self.linear_Q, self.linear_K, self.linear_V

    @classmethod
    def from_float(cls, other):
        """What an nn.MultiheadAttention with a qconfig becomes: its parts have observers."""
        if type(other) is not cls._FLOAT_MODULE:
            raise AssertionError(f"Expected type {cls._FLOAT_MODULE}, got {type(other)}")
        if not hasattr(other, "qconfig"):
            raise AssertionError("The float module must have 'qconfig'")
        observed = cls(
            other.embed_dim, other.num_heads, other.dropout, other.in_proj_bias is not None, other.bias_k is not None,
            other.add_zero_attn, other.kdim, other.vdim, other.batch_first,
        )  # fmt: skip
        observed.bias_k, observed.bias_v, observed.qconfig = other.bias_k, other.bias_v, other.qconfig
        observed.out_proj.weight, observed.out_proj.bias = other.out_proj.weight, other.out_proj.bias
        weights = (
            other.in_proj_weight.chunk(3)
            if other._qkv_same_embed_dim
            else (other.q_proj_weight, other.k_proj_weight, other.v_proj_weight)
        )
        biases = (None,) * 3 if other.in_proj_bias is None else other.in_proj_bias.chunk(3)
        for linear, weight, bias in zip(observed._inner(), weights, biases, strict=True):
            linear.weight = Parameter(weight)
            linear.bias = None if bias is None else Parameter(bias)
        import mica  # the flow of quantization imports the modules that it makes

        return mica.ao.quantization.prepare(observed.eval(), inplace=True)

    def dequantize(self):
        """The quantized attention as an nn.MultiheadAttention of the rounded weights."""
        (wq, bq), (wk, bk), (wv, bv) = ((linear.weight(), linear.bias()) for linear in self._inner())
        plain = self._FLOAT_MODULE if self._FLOAT_MODULE is nn.MultiheadAttention else nn.MultiheadAttention
        made = plain(
            self.embed_dim, self.num_heads, self.dropout, bq is not None, self.bias_k is not None, self.add_zero_attn,
            self.kdim, self.vdim, self.batch_first,
        )  # fmt: skip
        for name in ("bias_k", "bias_v"):
            if getattr(self, name) is not None:
                setattr(made, name, Parameter(getattr(self, name).dequantize()))
        weight, bias = self.out_proj.weight(), self.out_proj.bias()
        made.out_proj.weight = Parameter(weight.dequantize())
        made.out_proj.bias = None if bias is None else Parameter(bias)
        weights = [w.dequantize() for w in (wq, wk, wv)]
        with no_grad():
            if made._qkv_same_embed_dim:
                made.in_proj_weight.copy_(_C.cat(weights))
            else:
                for name, value in zip(("q", "k", "v"), weights, strict=True):
                    setattr(made, f"{name}_proj_weight", Parameter(value))
            if bq is not None:
                made.in_proj_bias.copy_(_C.cat([bq, bk, bv]))
        return made

    @classmethod
    def from_observed(cls, other):
        raise NotImplementedError(
            "It looks like you are trying to prepare an MHA module. Please, see the examples on quantizable MHAs."
        )

    def _masks(self, attn_mask, key_padding_mask, length, source, batch):
        """Both masks as bool, or as numbers to be added; the first with a dimension for the heads."""
        masks = []
        for name, mask in (("attn_mask", attn_mask), ("key_padding_mask", key_padding_mask)):
            if mask is not None and mask.dtype == _C.uint8:
                warnings.warn(
                    f"Byte tensor for `{name}` in `nn.MultiheadAttention` is deprecated. Use bool tensor instead.",
                    stacklevel=4,
                )
                mask = mask.to(_C.bool)
            masks.append(mask)
        attn_mask, key_padding_mask = masks
        if attn_mask is None:
            return attn_mask, key_padding_mask
        if not attn_mask.is_floating_point() and attn_mask.dtype != _C.bool:
            raise AssertionError(f"Only float and bool types are supported for attn_mask, not {attn_mask.dtype}")
        heads = {2: 1, 3: batch * self.num_heads}.get(attn_mask.dim())
        if heads is None:
            raise RuntimeError(f"attn_mask's dimension {attn_mask.dim()} is not supported")
        whole = attn_mask.unsqueeze(0) if attn_mask.dim() == 2 else attn_mask
        if list(whole.shape) != [heads, length, source]:
            raise RuntimeError(f"The size of the {attn_mask.dim()}D attn_mask is not correct.")
        return whole, key_padding_mask

    def forward(
        self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None, average_attn_weights=True,
        is_causal=False,
    ):  # fmt: skip
        if attn_mask is not None and is_causal:
            raise AssertionError("Only allow causal mask or attn_mask")
        if is_causal:
            raise AssertionError("causal mask not supported by AO MHA module")
        if self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        length, batch, width = query.shape
        if width != self.embed_dim:
            raise AssertionError(f"query's last dimension is {width}, and embed_dim is {self.embed_dim}")
        if key.shape[:2] != value.shape[:2]:
            raise AssertionError(f"key and value have different lengths or batches: {key.shape} and {value.shape}")
        head = self.embed_dim // self.num_heads
        if head * self.num_heads != self.embed_dim:
            raise AssertionError("embed_dim must be divisible by num_heads")
        attn_mask, key_padding_mask = self._masks(attn_mask, key_padding_mask, length, key.size(0), batch)
        q, k, v = self.linear_Q(query), self.linear_K(key), self.linear_V(value)
        q = self.q_scaling_product.mul_scalar(q, float(head) ** -0.5)
        if (self.bias_k is None) != (self.bias_v is None):
            raise AssertionError("bias_k and bias_v must both be None or both be there")
        if self.bias_k is not None:
            k, v = (_C.cat([x, b.repeat(1, batch, 1)]) for x, b in ((k, self.bias_k), (v, self.bias_v)))
            attn_mask, key_padding_mask = _padded(attn_mask), _padded(key_padding_mask)
        q, k, v = (x.contiguous().view(-1, batch * self.num_heads, head).transpose(0, 1) for x in (q, k, v))
        if key_padding_mask is not None and list(key_padding_mask.shape) != [batch, k.size(1)]:
            raise AssertionError(
                f"key_padding_mask is to be of shape {[batch, k.size(1)]}, got {list(key_padding_mask.shape)}"
            )
        if self.add_zero_attn:
            k, v = (_C.cat([x, _like(_C.zeros(x.size(0), 1, head), x)], 1) for x in (k, v))
            attn_mask, key_padding_mask = _padded(attn_mask), _padded(key_padding_mask)
        # Between these stubs the numbers are float32.
        q, k, v = self.dequant_q(q), self.dequant_k(k), self.dequant_v(v)
        source = k.size(1)
        scores = _C.bmm(q, k.transpose(1, 2))
        if attn_mask is not None:
            scores = scores.masked_fill(attn_mask, -float("inf")) if attn_mask.dtype == _C.bool else scores + attn_mask
        per_head = (batch, self.num_heads, length, source)
        if key_padding_mask is not None:
            scores = scores.view(per_head).masked_fill(key_padding_mask[:, None, None], -float("inf"))
        weights = F.softmax(scores.view(batch * self.num_heads, length, source), dim=-1)
        weights = F.dropout(weights, p=self.dropout, training=self.training)
        mixed = _C.bmm(weights, v)
        if self.batch_first:
            mixed = mixed.view(batch, length, self.embed_dim)  # as torch does it, although heads come before positions
        else:
            mixed = mixed.transpose(0, 1).contiguous().view(length, batch, self.embed_dim)
        result = self.out_proj(self.quant_attn_output(mixed))
        weights = self.quant_attn_output_weights(weights)
        if not need_weights:
            return result, None
        weights = weights.view(per_head)
        return result, weights.mean(dim=1) if average_attn_weights else weights
