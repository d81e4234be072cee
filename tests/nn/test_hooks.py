"""The hooks of modules: around forward, around backward, of all modules."""

import warnings
from collections import OrderedDict

import mica
import pytest
from mica import nn
from mica.nn.modules import module as module_hooks


def test_forward_hooks_in_order_and_their_results():
    net, log = nn.Linear(2, 2), []
    net.register_forward_pre_hook(lambda m, args: log.append("pre"))
    net.register_forward_pre_hook(lambda m, args: (args[0] * 2,), prepend=True)
    net.register_forward_pre_hook(lambda m, args: args[0] + 1)  # a single value is wrapped
    net.register_forward_hook(lambda m, args, out: log.append(("post", args[0].sum().item())))
    handle = net.register_forward_hook(lambda m, args, out: out * 0, prepend=True)
    assert not net(mica.ones(1, 2)).any()
    assert log == ["pre", ("post", 6.0)]
    handle.remove()
    expected = nn.functional.linear(mica.full((1, 2), 3.0), net.weight, net.bias)
    assert mica.equal(net(mica.ones(1, 2)), expected)


def test_hooks_with_keyword_arguments():
    class Scaled(nn.Module):
        def forward(self, x, scale=1):
            return x * scale

    net, seen = Scaled(), []
    net.register_forward_pre_hook(lambda m, args, kwargs: (args, {"scale": 3}), with_kwargs=True)
    net.register_forward_hook(lambda m, args, kwargs, out: seen.append(kwargs), with_kwargs=True)
    assert net(mica.ones(1)).item() == 3 and seen == [{"scale": 3}]
    net.register_forward_pre_hook(lambda m, args, kwargs: "no", with_kwargs=True)
    with pytest.raises(RuntimeError, match="forward pre-hook must return None or a tuple of"):
        net(mica.ones(1))


def test_hooks_that_are_always_called():
    class Failing(nn.Module):
        def forward(self, x):
            raise ValueError("broken")

    net, called = Failing(), []
    net.register_forward_hook(lambda m, a, o: called.append("plain"))
    net.register_forward_hook(lambda m, a, o: called.append("always"), always_call=True)
    with pytest.raises(ValueError, match="broken"):
        net(1)
    assert called == ["always"]

    def also_failing(m, a, o):
        raise KeyError("second")

    net.register_forward_hook(also_failing, always_call=True)
    with pytest.warns(UserWarning, match="raised an exception that was silenced"), pytest.raises(ValueError):
        net(1)


def test_handles_are_context_managers():
    net, calls = nn.ReLU(), []
    with net.register_forward_hook(lambda *_: calls.append(1)):
        net(mica.ones(1))
    net(mica.ones(1))
    assert calls == [1] and not net._forward_hooks


def test_handles_know_their_dicts():
    net = nn.ReLU()
    handle = net.register_forward_hook(lambda *_: None, with_kwargs=True)
    assert handle.hooks_dict_ref() is net._forward_hooks
    assert handle.extra_dict_ref[0]() is net._forward_hooks_with_kwargs


def test_full_backward_hooks_see_and_change_gradients():
    net, seen = nn.Linear(2, 3), []
    net.register_full_backward_hook(lambda m, gi, go: seen.append((gi, go)))
    x = mica.ones(4, 2, requires_grad=True)
    net(x).sum().backward()
    (grad_input,), (grad_output,) = seen[0]
    assert mica.equal(grad_output, mica.ones(4, 3)) and mica.equal(grad_input, x.grad)
    x.grad = None
    net.register_full_backward_hook(lambda m, gi, go: (gi[0] * 0,))
    net(x).sum().backward()
    assert not x.grad.any()
    pre = nn.Linear(2, 3)
    pre.register_full_backward_pre_hook(lambda m, go: (go[0] * 2,))
    y = mica.ones(4, 2, requires_grad=True)
    pre(y).sum().backward()
    assert mica.allclose(y.grad, 2 * pre.weight.sum(0).expand(4, 2))
    assert mica.equal(pre.bias.grad, mica.full((3,), 8.0))


def test_backward_hooks_where_no_input_needs_a_gradient():
    net, seen = nn.Linear(2, 3), []
    net.register_full_backward_hook(lambda m, gi, go: seen.append(gi))
    with pytest.warns(UserWarning, match="Full backward hook is firing"):
        net(mica.ones(1, 2)).sum().backward()
    assert seen == [(None,)]


def test_backward_hooks_with_several_inputs_and_outputs():
    class Two(nn.Module):
        def forward(self, a, k, b):
            return a * k, None, b + a

    net, seen = Two(), []
    net.register_full_backward_hook(lambda m, gi, go: seen.append((gi, go)))
    a, b = mica.ones(2, requires_grad=True), mica.ones(2)
    first, nothing, last = net(a, 3, b)
    assert nothing is None
    (first.sum() + last.sum()).backward()
    gi, go = seen[0]
    assert mica.equal(gi[0], mica.full((2,), 4.0)) and gi[1] is None and gi[2] is None
    assert go[1] is None and mica.equal(go[2], mica.ones(2))


def test_hooks_that_return_the_wrong_number():
    net = nn.Linear(2, 3)
    net.register_full_backward_hook(lambda m, gi, go: (gi[0], gi[0]))
    with pytest.raises(RuntimeError, match="invalid number of grad_input, got 2, but expected 1"):
        net(mica.ones(1, 2, requires_grad=True)).sum().backward()
    other = nn.Linear(2, 3)
    other.register_full_backward_pre_hook(lambda m, go: ())
    with pytest.raises(RuntimeError, match="invalid number of grad_output, got 0, but expected 1"):
        other(mica.ones(1, 2, requires_grad=True)).sum().backward()


def test_old_backward_hooks():
    net, seen = nn.Sigmoid(), []
    net.register_backward_hook(lambda m, gi, go: seen.append((gi, go)))
    x = mica.zeros(2, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (net(x) * 1).sum().backward()
    assert mica.allclose(seen[0][0][0], mica.full((2,), 0.25))
    with pytest.raises(RuntimeError, match="Cannot use both regular backward hooks and full backward hooks"):
        net.register_full_backward_hook(lambda *_: None)
    with pytest.warns(FutureWarning, match="multiple autograd Nodes"):
        several = nn.Sequential(nn.Sigmoid(), nn.Sigmoid())
        several.register_backward_hook(lambda *_: None)
        several(x)


def test_hooks_of_all_modules():
    log = []
    handles = [
        module_hooks.register_module_forward_pre_hook(lambda m, a: log.append("pre")),
        module_hooks.register_module_forward_hook(lambda m, a, o: log.append("post")),
        module_hooks.register_module_forward_hook(lambda m, a, k, o: log.append(len(k)), with_kwargs=True),
        module_hooks.register_module_full_backward_pre_hook(lambda m, go: log.append("before")),
        module_hooks.register_module_full_backward_hook(lambda m, gi, go: log.append("after")),
    ]
    try:
        nn.ReLU()(mica.ones(1, requires_grad=True)).sum().backward()
        with pytest.raises(RuntimeError, match="as a global Module hook"):
            module_hooks.register_module_backward_hook(lambda *_: None)
    finally:
        for handle in handles:
            handle.remove()
    assert log == ["pre", "post", 0, "before", "after"]
    nn.ReLU()(mica.ones(1))
    assert len(log) == 5


def test_hooks_are_copied_with_the_module():
    import copy

    net, calls = nn.ReLU(), []
    net.register_forward_hook(calls.append and (lambda *_: calls.append(1)))
    copy.deepcopy(net)(mica.ones(1))
    assert calls == [1]


def test_another_dict_of_global_hooks_is_what_counts():
    module, seen = module_hooks, []
    handle = module.register_module_forward_hook(lambda *args: seen.append(1))
    nn.Sigmoid()(mica.ones(1))
    module._global_forward_hooks = OrderedDict()
    nn.Sigmoid()(mica.ones(1))
    assert seen == [1]
    other = module.register_module_forward_hook(lambda *args: seen.append(2))
    nn.Sigmoid()(mica.ones(1))
    other.remove()
    handle.remove()
    nn.Sigmoid()(mica.ones(1))
    assert seen == [1, 2]
