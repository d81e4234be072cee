"""Multi-head attention."""

import mica

from .. import functional as F
from .. import init
from ..parameter import Parameter
from . import activation
from .linear import NonDynamicallyQuantizableLinear
from .module import Module

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Attention in several subspaces: each head has its own projections of query, key and value.

    Args:
        embed_dim: the number of features of the query and of the result; num_heads divides it
        num_heads: the number of heads
        dropout: the probability that a weight becomes zero, in training
        bias: whether the projections have biases
        add_bias_kv: whether a trained key and value are added to each sequence
        add_zero_attn: whether a key and a value of zeros are added to each sequence
        kdim, vdim: the number of features of keys and values; embed_dim if they are not given
        batch_first: whether tensors are (batch, length, features) and not (length, batch, features)
        device, dtype: of the parameters

    A call takes query, key and value, and returns the result and the weights, averaged over heads; with
    `need_weights=False` None stands for the weights, which is faster.

    Example::

        attention = nn.MultiheadAttention(64, num_heads=8, batch_first=True)
        x = torch.randn(2, 10, 64)
        y, _ = attention(x, x, x, need_weights=False)  # (2, 10, 64)
    """

    __constants__ = ["batch_first"]
    bias_k: mica.Tensor | None
    bias_v: mica.Tensor | None

    def __init__(
        self,
        embed_dim,
        num_heads,
        dropout=0.0,
        bias=True,
        add_bias_kv=False,
        add_zero_attn=False,
        kdim=None,
        vdim=None,
        batch_first=False,
        device=None,
        dtype=None,
    ):
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and num_heads={num_heads} "
                "instead"
            )
        super().__init__()
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        if self.head_dim * num_heads != embed_dim:
            raise AssertionError(f"embed_dim must be divisible by num_heads, but {embed_dim} is not by {num_heads}")

        def parameter(*shape):
            return Parameter(mica.empty(shape, device=device, dtype=dtype))

        if self._qkv_same_embed_dim:
            self.in_proj_weight = parameter(3 * embed_dim, embed_dim)
            for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
                self.register_parameter(name, None)
        else:
            self.q_proj_weight = parameter(embed_dim, embed_dim)
            self.k_proj_weight = parameter(embed_dim, self.kdim)
            self.v_proj_weight = parameter(embed_dim, self.vdim)
            self.register_parameter("in_proj_weight", None)
        if bias:
            self.in_proj_bias = parameter(3 * embed_dim)
        else:
            self.register_parameter("in_proj_bias", None)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        if add_bias_kv:
            self.bias_k = parameter(1, 1, embed_dim)
            self.bias_v = parameter(1, 1, embed_dim)
        else:
            self.bias_k = self.bias_v = None
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self):
        if self._qkv_same_embed_dim:
            init.xavier_uniform_(self.in_proj_weight)
        else:
            init.xavier_uniform_(self.q_proj_weight)
            init.xavier_uniform_(self.k_proj_weight)
            init.xavier_uniform_(self.v_proj_weight)
        if self.in_proj_bias is not None:
            init.constant_(self.in_proj_bias, 0.0)
            init.constant_(self.out_proj.bias, 0.0)
        if self.bias_k is not None:
            init.xavier_normal_(self.bias_k)
        if self.bias_v is not None:
            init.xavier_normal_(self.bias_v)

    def __setstate__(self, state):
        state.setdefault("_qkv_same_embed_dim", True)  # written before it existed
        super().__setstate__(state)

    def forward(
        self,
        query,
        key,
        value,
        key_padding_mask=None,
        need_weights=True,
        attn_mask=None,
        average_attn_weights=True,
        is_causal=False,
    ):
        if query.is_nested or key.is_nested or value.is_nested:
            raise AssertionError(
                "MultiheadAttention does not support NestedTensor outside of its fast path. The fast path was not hit "
                "because Mica has none: pad the sequences (x.to_padded_tensor(0.0)) and give key_padding_mask"
            )
        batch_first = self.batch_first and query.dim() == 3
        if batch_first:
            # One tensor stays one tensor, so that it is projected once.
            turned = {id(x): x.transpose(1, 0) for x in (query, key, value)}
            query, key, value = (turned[id(x)] for x in (query, key, value))
        separate = not self._qkv_same_embed_dim
        output, weights = F.multi_head_attention_forward(
            query,
            key,
            value,
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            self.out_proj.weight,
            self.out_proj.bias,
            training=self.training,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            use_separate_proj_weight=separate,
            q_proj_weight=self.q_proj_weight if separate else None,
            k_proj_weight=self.k_proj_weight if separate else None,
            v_proj_weight=self.v_proj_weight if separate else None,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        if not batch_first:
            return output, weights
        output = output.transpose(1, 0)
        whole = query is key is value and self._has_fast_path(query, key_padding_mask, attn_mask)
        return output.contiguous() if whole else output, weights

    def _has_fast_path(self, x, *masks):
        """Whether torch computes the attention of x to itself in one piece, and so lays the result out batch first."""
        given = (x, self.in_proj_weight, self.in_proj_bias, self.out_proj.weight, self.out_proj.bias)
        return not (
            self.training
            or self.in_proj_weight is None
            or self.bias_k is not None
            or self.add_zero_attn
            or self.num_heads % 2
            or any(mask is not None and mask.is_floating_point() for mask in masks)
            or mica.is_autocast_enabled()
            or (mica.is_grad_enabled() and any(t is not None and t.requires_grad for t in given))
        )

    def merge_masks(self, attn_mask, key_padding_mask, query):
        """The two masks as one for every head, and its kind: 0 or None none, 1 of keys, 2 of pairs."""
        if attn_mask is None:
            return key_padding_mask, None if key_padding_mask is None else 1
        batch, length, _ = query.shape
        merged = (
            attn_mask.view(batch, -1, length, length)
            if attn_mask.dim() == 3
            else attn_mask.view(1, 1, length, length).expand(batch, self.num_heads, -1, -1)
        )
        if key_padding_mask is not None:
            merged = merged + key_padding_mask.view(batch, 1, 1, length).expand(-1, self.num_heads, -1, -1)
        return merged, 2


# Programs and pickles know it from here.
MultiheadAttention.__module__ = activation.__name__
activation.MultiheadAttention = MultiheadAttention
