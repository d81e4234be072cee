"""What torchao asks of torch beside its public names."""

import copy
import pickle

import mica
import mica._dynamo
import pytest
from mica import nn
from mica.ao.ns.fx.utils import compute_cosine_similarity, compute_normalized_l2_error, compute_sqnr


def test_states_of_objects():
    class Weight(mica.Tensor):
        def __setstate__(self, state):
            assert mica._utils._set_obj_state(self, {**state, "seen": True}) is self

    weight = mica.ones(2).as_subclass(Weight)
    weight.scale = 3
    assert mica._utils._get_obj_state(weight) == {"scale": 3}
    made = mica._utils._rebuild_from_type_v2(mica.ones, Weight, (2,), {"scale": 3})
    assert type(made) is Weight and made.scale == 3 and made.seen
    assert copy.deepcopy(weight).scale == 3
    assert pickle.loads(pickle.dumps(nn.Parameter(mica.ones(1)))).item() == 1


def test_compilation_without_a_limit():
    from mica._dynamo import config

    before = config.recompile_limit, config.accumulated_recompile_limit
    with mica._dynamo.utils.disable_cache_limit():
        compiled = mica.compile(lambda x: x + 1, backend="eager", dynamic=False, fullgraph=True)
        for size in range(2, 14):
            assert compiled(mica.ones(size)).shape == (size,)
    assert (config.recompile_limit, config.accumulated_recompile_limit) == before


def test_a_model_can_be_prepared_anew():
    from mica.ao.quantization import default_qconfig, prepare
    from mica.ao.quantization.quantize import _remove_qconfig

    model = nn.Sequential(nn.Linear(2, 2))
    model.qconfig = default_qconfig
    prepared = prepare(model)
    assert hasattr(prepared[0], "activation_post_process")
    _remove_qconfig(prepared)
    assert not any(hasattr(part, "qconfig") or hasattr(part, "activation_post_process") for part in prepared.modules())
    assert prepared(mica.ones(1, 2)).shape == (1, 2)


def test_one_scale_for_each_vector():
    from mica.ao.quantization.fx._decomposed import _per_token_quant_qparam_dim_check as check

    check(mica.ones(2, 3, 4), mica.ones(2, 3, 1), mica.ones(2, 3, 1))
    with pytest.raises(AssertionError, match="num_tokens: 6 scales"):
        check(mica.ones(2, 3, 4), mica.ones(2, 1), mica.ones(2, 3, 1))


def test_distances():
    x, y = mica.tensor([[3.0, 0.0], [0.0, 4.0]]), mica.tensor([[3.0, 0.5], [0.0, 4.0]])
    assert compute_sqnr(x, y).item() == pytest.approx(20.0)
    assert compute_normalized_l2_error(x, y).item() == pytest.approx(0.1)
    assert compute_cosine_similarity(x, y).tolist() == pytest.approx([25 / 5 / 25.25**0.5])
    assert [each.item() for each in compute_sqnr((x, y), (y, x))] == pytest.approx([20.0, 20.0432], abs=1e-4)
    assert compute_sqnr(x.double(), y.double()) is None
    assert compute_sqnr([x.int()], [y.int()]) == [None]


def test_options_of_a_table_of_rows_are_named():
    """Classes of weights take the indices and the weight by position, and all else by name."""

    class Weight(mica.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func is mica.nn.functional.embedding:
                seen.append((len(args), sorted(kwargs)))
            return super().__torch_function__(func, types, args, kwargs)

    seen, table = [], nn.Embedding(4, 2)
    table.weight = nn.Parameter(table.weight.detach().as_subclass(Weight))
    assert table(mica.tensor([1, 3])).shape == (2, 2)
    assert seen == [(2, ["max_norm", "norm_type", "padding_idx", "scale_grad_by_freq", "sparse"])]


def test_values_of_modules_are_set_by_their_kinds():
    from mica.export.unflatten import _assign_attr, _AttrKind

    module = nn.Module()
    _assign_attr(nn.Parameter(mica.ones(2)), module, "part.weight", _AttrKind.PARAMETER)
    _assign_attr(mica.zeros(2), module, "part.mean", _AttrKind.BUFFER, persistent=False)
    _assign_attr(3, module, "scale", _AttrKind.CONSTANT)
    assert list(module.state_dict()) == ["part.weight"] and module.scale == 3
    assert dict(module.named_buffers())["part.mean"].tolist() == [0, 0]
