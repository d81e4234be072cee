"""What each process of a training with FullyShardedDataParallel does, and checks."""

import functools
import shutil
import tempfile

import mica as torch
import mica.distributed.checkpoint as dcp
import pytest
from data_parallel_cases import batches, loss_of, train_alone
from mica import nn
from mica.distributed import fsdp
from mica.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from mica.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from mica.distributed.fsdp import FullyShardedDataParallel as FSDP
from mica.distributed.fsdp import ShardingStrategy, StateDictType
from mica.distributed.fsdp.wrap import (
    CustomPolicy,
    ModuleWrapPolicy,
    enable_wrap,
    size_based_auto_wrap_policy,
    transformer_auto_wrap_policy,
    wrap,
)
from mica.distributed.tensor import DTensor
from ranks import same_losses, steps
from sharded_cases import deep, train

dist = torch.distributed
BLOCKS = ModuleWrapPolicy({nn.Sequential})


def wrapped(dtype=torch.float64, policy=BLOCKS, **options):
    return FSDP(deep(dtype), auto_wrap_policy=policy, **options)


def mine(rank, *tensors):
    return [tensor[rank * 8 : rank * 8 + 8] for tensor in tensors]


def losses_of_one_process(rank, size):
    expected = train_alone(deep(), steps(12), 8 * size)
    every = [{"use_orig_params": orig} for orig in (False, True)]
    for strategy in ("SHARD_GRAD_OP", "NO_SHARD", "FULL_SHARD"):
        every.append(
            {"sharding_strategy": getattr(ShardingStrategy, strategy), "use_orig_params": strategy != "FULL_SHARD"}
        )
    every += [
        {"cpu_offload": fsdp.CPUOffload(True), "use_orig_params": True},
        {"backward_prefetch": None, "forward_prefetch": True},
        {"policy": None, "limit_all_gathers": False},
        {"sync_module_states": True, "device_id": torch.device("cpu")},
    ]
    for options in every:
        model = wrapped(**options)
        same_losses(train(rank, size, model, steps(12)), expected, options)
    with pytest.raises(AttributeError):
        model.nothing  # noqa: B018
    expected = train_alone(deep(torch.float32), steps(12), 8 * size)
    same_losses(train(rank, size, wrapped(torch.float32), steps(12)), expected, single=True)


def hybrid_strategies(rank, size):
    if size < 4:
        return
    mesh = dist.device_mesh.init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("replicate", "shard"))
    expected = train_alone(deep(), steps(10), 8 * size)
    for strategy in (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2):
        model = wrapped(sharding_strategy=strategy, device_mesh=mesh, use_orig_params=True)
        assert model.world_size == size // 2
        same_losses(train(rank, size, model, steps(10)), expected, strategy)
    model = wrapped(sharding_strategy=ShardingStrategy.HYBRID_SHARD)  # one machine: a world of one replica
    assert model.world_size == size and model._inter_node_pg.size() == 1
    same_losses(train(rank, size, model, steps(10)), expected)


def what_parameters_are(rank, size):
    flat, orig = wrapped(), wrapped(use_orig_params=True)
    assert [name for name, _ in flat.named_parameters()] == ["_fsdp_wrapped_module._flat_param"] + [
        f"_fsdp_wrapped_module.blocks.{i}._fsdp_wrapped_module._flat_param" for i in range(3)
    ]
    assert all(isinstance(p, fsdp.FlatParameter) and p.dim() == 1 for p in flat.parameters())
    names = [name.replace("_fsdp_wrapped_module.", "") for name, _ in orig.named_parameters()]
    assert names == [name for name, _ in deep().named_parameters()]
    total = sum(p.numel() for p in deep().parameters())
    assert sum(p.numel() for p in orig.parameters()) <= -(-total // size) + 8
    assert isinstance(flat.module, nn.Module) and flat.blocks[0][0].in_features == 13 and flat.check_is_root()
    assert len(FSDP.fsdp_modules(flat)) == 4 and FSDP.fsdp_modules(flat, root_only=True) == [flat]
    x, y = mine(rank, *next(batches(1, 8 * size)))
    loss_of(flat, x, y).backward()
    for module in FSDP.fsdp_modules(flat):
        group = module._fsdp_state.group
        assert not group.is_whole and group.full.untyped_storage().nbytes() == 0
        assert group.flat.grad.shape == group.flat.shape


def wrapping_policies(rank, size):
    small = functools.partial(size_based_auto_wrap_policy, min_num_params=300)
    layers = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={nn.Sequential})
    zero2 = CustomPolicy(
        lambda m: {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP} if m.__class__ is nn.Sequential else False
    )
    for policy, count in ((small, 4), (layers, 4), (zero2, 4), (lambda module, recurse, nonwrapped_numel: recurse, 1)):
        model = wrapped(policy=policy)
        assert len(FSDP.fsdp_modules(model)) == count
        same_losses(train(rank, size, model, steps(5)), train_alone(deep(), steps(5), 8 * size), policy)
    assert isinstance(wrap(nn.Linear(2, 2)), nn.Linear)
    with enable_wrap(wrapper_cls=FSDP, use_orig_params=True):
        made = wrap(nn.Linear(4, 4))
    assert isinstance(made, FSDP) and made._use_orig_params


def mixed_precision(rank, size):
    seen = set()
    model = deep(torch.float32)
    model.blocks[1][0].register_forward_hook(lambda module, args, out: seen.add(out.dtype))
    mixed = fsdp.MixedPrecision(torch.bfloat16, torch.float32, torch.bfloat16)
    model = FSDP(model, auto_wrap_policy=BLOCKS, mixed_precision=mixed, use_orig_params=True)
    x, _y = next(batches(1, 8, torch.float32))
    assert model(x)["out"][0].dtype is torch.bfloat16 and seen == {torch.bfloat16}
    losses = train(rank, size, model, 20)
    assert losses == pytest.approx(train_alone(deep(torch.float32), 20, 8 * size), rel=0.1)
    assert all(p.dtype is torch.float32 for p in model.parameters())
    assert all(value.dtype is torch.float32 for value in model.state_dict().values())
    with pytest.raises(NotImplementedError, match="keep_low_precision_grads"):
        wrapped(mixed_precision=fsdp.MixedPrecision(torch.bfloat16, keep_low_precision_grads=True))


def gradients_add_up_without_sync(rank, size):
    for orig in (False, True):
        model, alone = wrapped(use_orig_params=orig), deep()
        for number, (x, y) in enumerate(batches(3, 8 * size)):
            loss_of(alone, x, y).backward()
            x, y = mine(rank, x, y)
            if number == 2:
                loss_of(model, x, y).backward()
            else:
                with model.no_sync():
                    loss_of(model, x, y).backward()
        norm, expected = model.clip_grad_norm_(0.01), nn.utils.clip_grad_norm_(alone.parameters(), 0.01)
        assert torch.allclose(norm, expected, rtol=1e-11)
        if orig:
            with FSDP.summon_full_params(model, with_grads=True):
                for (name, ours), theirs in zip(model.named_parameters(), alone.parameters(), strict=True):
                    assert torch.allclose(ours.grad, theirs.grad, rtol=1e-10, atol=1e-14), name
        for kind in (1.0, float("inf")):
            ours = model.clip_grad_norm_(1e-4, kind)
            assert torch.allclose(ours, nn.utils.clip_grad_norm_(alone.parameters(), 1e-4, kind), rtol=1e-9)


def whole_parameters(rank, size):
    for orig in (False, True):
        model, alone = wrapped(use_orig_params=orig), deep()
        pieces = [p.detach().clone() for p in model.parameters()]
        with FSDP.summon_full_params(model):
            for (name, ours), (expected, theirs) in zip(
                model.named_parameters(), alone.named_parameters(), strict=True
            ):
                assert name == expected and torch.equal(ours, theirs)
            assert model.last.weight is model.again.weight
            with torch.no_grad():
                model.first.weight.mul_(2)
        with FSDP.summon_full_params(model, writeback=False), torch.no_grad():
            assert torch.equal(model.first.weight, 2 * alone.first.weight)
            model.first.weight.zero_()
        with FSDP.summon_full_params(model, rank0_only=True, writeback=False):
            if rank == 0:
                assert torch.equal(model.first.weight, 2 * alone.first.weight)
        assert [p.shape for p in model.parameters()] == [p.shape for p in pieces]
        model.apply(
            lambda module: (
                module.bias.data.fill_(3) if isinstance(module, nn.Linear) and module.bias is not None else None
            )
        )
        with FSDP.summon_full_params(model):
            assert all((p == 3).all() for name, p in model.named_parameters() if name.endswith("bias"))


def states(rank, size):
    for orig in (False, True):
        model, alone = wrapped(use_orig_params=orig), deep()
        train(rank, size, model, 3)
        train_alone(alone, 3, 8 * size)
        full = model.state_dict()
        assert list(full) == list(alone.state_dict())
        for name, value in alone.state_dict().items():
            assert torch.allclose(full[name], value, rtol=1e-10, atol=1e-13)
        config = fsdp.FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
            assert bool(model.state_dict()) == (rank == 0)
        x, _ = next(batches(1, 4))
        for kind in StateDictType:
            with FSDP.state_dict_type(model, kind):
                state = model.state_dict()
            if kind is StateDictType.SHARDED_STATE_DICT:
                assert all(isinstance(value, DTensor) for value in state.values()) and list(state) == list(full)
            if kind is StateDictType.LOCAL_STATE_DICT:
                assert list(state)[-1] == "_flat_param" and len(state) == 4
            other = wrapped(use_orig_params=orig)
            with torch.no_grad():
                for parameter in other.parameters():
                    parameter.zero_()
            with FSDP.state_dict_type(other, kind):
                other.load_state_dict(state)
            with torch.no_grad():
                assert torch.equal(other(x)["out"][0], model(x)["out"][0]), kind
        with pytest.raises(RuntimeError, match="first.weight"):
            wrapped().load_state_dict({name: value for name, value in full.items() if name != "first.weight"})
        assert FSDP.get_state_dict_type(model).state_dict_type is StateDictType.FULL_STATE_DICT


def optimizer_states(rank, size):
    def go(model, optimizer, count, skip=0):
        losses = []
        for number, (x, y) in enumerate(batches(skip + count, 8 * size)):
            if number >= skip:
                optimizer.zero_grad()
                loss = loss_of(model, *mine(rank, x, y))
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        return losses

    for orig in (False, True):
        model = wrapped(use_orig_params=orig)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        go(model, optimizer, 3)
        for kind in (StateDictType.FULL_STATE_DICT, StateDictType.SHARDED_STATE_DICT):
            with FSDP.state_dict_type(model, kind):
                state, moments = model.state_dict(), FSDP.optim_state_dict(model, optimizer)
            assert moments["state"]["first.weight"]["exp_avg"].shape == (13, 6)
            other = wrapped(use_orig_params=not orig)
            fresh = torch.optim.AdamW(other.parameters(), lr=0.5)
            with FSDP.state_dict_type(other, kind):
                other.load_state_dict(state)
                fresh.load_state_dict(FSDP.optim_state_dict_to_load(other, fresh, moments))
            again = wrapped(use_orig_params=orig)
            third = torch.optim.AdamW(again.parameters(), lr=0.01)
            again.load_state_dict(model.state_dict())
            third.load_state_dict(FSDP.shard_full_optim_state_dict(
                FSDP.full_optim_state_dict(model, optimizer, rank0_only=False), again, optim=third))  # fmt: skip
            expected = go(again, third, 3, 3)
            assert go(other, fresh, 3, 3) == pytest.approx(expected, rel=1e-11)
        alone = deep()
        plain = torch.optim.AdamW(alone.parameters(), lr=0.01)
        whole = FSDP.full_optim_state_dict(model, optimizer, rank0_only=False)
        plain.load_state_dict(FSDP.rekey_optim_state_dict(whole, fsdp.OptimStateKeyType.PARAM_ID, alone, optim=plain))
        assert torch.equal(plain.state[alone.first.weight]["exp_avg"], whole["state"]["first.weight"]["exp_avg"])
        assert FSDP.full_optim_state_dict(model, optimizer) == {} or rank == 0


def checkpoints(rank, size):
    """A checkpoint of a wrapped model is one of the model without wrappers."""
    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder)
    model = wrapped(use_orig_params=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    loss_of(model, *mine(rank, *next(batches(1, 8 * size)))).backward()
    optimizer.step()
    states = dict(zip(("model", "optim"), get_state_dict(model, optimizer), strict=True))
    assert isinstance(states["model"]["first.weight"], DTensor)
    assert isinstance(states["optim"]["state"]["first.weight"]["exp_avg"], DTensor)
    dcp.save(states, checkpoint_id=folder[0])
    other = wrapped()
    fresh = torch.optim.AdamW(other.parameters(), lr=0.01)
    wanted = dict(zip(("model", "optim"), get_state_dict(other, fresh), strict=True))
    dcp.load(wanted, checkpoint_id=folder[0])
    set_state_dict(other, fresh, model_state_dict=wanted["model"], optim_state_dict=wanted["optim"])
    options = StateDictOptions(full_state_dict=True)
    expected = get_state_dict(model, optimizer, options=options)
    found = get_state_dict(other, fresh, options=options)
    assert all(torch.equal(found[0][name], value) for name, value in expected[0].items())
    for name, values in expected[1]["state"].items():
        assert all(torch.equal(found[1]["state"][name][key], value) for key, value in values.items()), name
    plain = {"model": deep().state_dict()}
    dcp.load(plain, checkpoint_id=folder[0])
    assert all(torch.equal(plain["model"][name], value) for name, value in expected[0].items())
    dist.barrier()
    if rank == 0:
        shutil.rmtree(folder[0])


def activations_computed_again(rank, size):
    expected = train_alone(deep(), steps(10), 8 * size)
    for kind in CheckpointImpl:
        for orig in (False, True):
            model = deep()
            names = list(model.state_dict())
            wrap = functools.partial(checkpoint_wrapper, checkpoint_impl=kind)
            apply_activation_checkpointing(model, wrap, lambda module: isinstance(module, nn.Sequential))
            model = FSDP(model, auto_wrap_policy=BLOCKS, use_orig_params=orig)
            same_losses(train(rank, size, model, steps(10)), expected, (kind, orig))
            assert sorted(model.state_dict()) == sorted(names)
            model.load_state_dict(model.state_dict())


def frozen_ignored_and_refused(rank, size):
    model = deep()
    model.first.requires_grad_(False)
    with pytest.raises(ValueError, match="uniform requires_grad"):
        FSDP(model)
    alone = deep()
    alone.first.requires_grad_(False)
    frozen = FSDP(model, auto_wrap_policy=BLOCKS, use_orig_params=True)
    same_losses(train(rank, size, frozen, steps(5)), train_alone(alone, steps(5), 8 * size))
    model = deep()
    kept = FSDP(model, ignored_modules=[model.first], use_orig_params=True)
    assert kept.first.weight.shape == (13, 6)
    with pytest.raises(NotImplementedError), FSDP.summon_full_params(kept, rank0_only=True):
        pass
    seen = []

    def send(state, gradient, piece):
        seen.append(gradient.numel())
        dist.reduce_scatter_tensor(piece, gradient, dist.ReduceOp.AVG)

    model = wrapped()
    model.register_comm_hook(None, send)
    same_losses(train(rank, size, model, steps(5)), train_alone(deep(), steps(5), 8 * size))
    assert len(seen) == 4 * steps(5)


def recurrent_layers(rank, size):
    def make():
        torch.manual_seed(1)
        return nn.LSTM(6, 5, batch_first=True).double()

    alone, x = make(), torch.randn(size, 3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    alone(x)[0].square().mean().backward()
    whole = [p.grad for p in alone.parameters()]
    for orig in (False, True):
        model = FSDP(make(), use_orig_params=orig)
        model(x[rank : rank + 1])[0].square().mean().backward()
        group = model._fsdp_state.group
        got = group.gathered(group.piece_of_gradient())
        for view, expected in zip(group.views, whole, strict=True):
            assert torch.allclose(view.of(got), expected, rtol=1e-11)
    sharded = fsdp.fully_shard(make())
    sharded(x[rank : rank + 1])[0].square().mean().backward()
    for parameter, expected in zip(sharded.parameters(), whole, strict=True):
        assert torch.allclose(parameter.grad.full_tensor(), expected, rtol=1e-11)


CASES = [
    losses_of_one_process, hybrid_strategies, what_parameters_are, wrapping_policies, mixed_precision,
    gradients_add_up_without_sync, whole_parameters, states, optimizer_states, checkpoints, activations_computed_again,
    frozen_ignored_and_refused, recurrent_layers,
]  # fmt: skip
