"""Steps with the sparse gradients of embeddings: Adagrad and SGD take them, LBFGS makes them dense, the others refuse."""

import mica
import pytest
from mica import nn

STEPS = ([1, 1, 3], [0, 3, 5], [1, 2, 2])


def trained(name, sparse, **options):
    mica.manual_seed(0)
    embedding = nn.Embedding(6, 2, sparse=sparse)
    optimizer = getattr(mica.optim, name)(embedding.parameters(), lr=0.1, **options)
    for ids in STEPS:
        optimizer.zero_grad()
        (embedding(mica.tensor(ids)) * mica.arange(1.0, 7).view(3, 2)).sum().backward()
        assert embedding.weight.grad.is_sparse == sparse
        optimizer.step()
    return embedding.weight, optimizer


@pytest.mark.parametrize(
    "name, options",
    [
        ("Adagrad", {}),
        ("Adagrad", {"foreach": True}),
        ("Adagrad", {"maximize": True, "lr_decay": 0.1}),
        ("Adagrad", {"initial_accumulator_value": 0.5, "eps": 1e-3}),
        ("SGD", {}),
        ("SGD", {"momentum": 0.9, "nesterov": True}),
        ("SGD", {"momentum": 0.9, "dampening": 0.5, "maximize": True}),
    ],
)
def test_the_step_of_a_dense_gradient(name, options):
    weight, optimizer = trained(name, True, **options)
    expected, other = trained(name, False, **options)
    mica.testing.assert_close(weight, expected)
    state, expected = optimizer.state_dict()["state"], other.state_dict()["state"]
    for key, value in expected.get(0, {}).items():
        ours = state[0][key]
        mica.testing.assert_close(ours.to_dense() if ours.is_sparse else ours, value)


def test_a_momentum_does_not_grow_with_the_steps():
    embedding = nn.Embedding(6, 2, sparse=True)
    optimizer = mica.optim.SGD(embedding.parameters(), lr=0.1, momentum=0.9)
    for _ in range(20):
        optimizer.zero_grad()
        embedding(mica.tensor([0, 3, 3, 5])).sum().backward()
        optimizer.step()
    assert optimizer.state[embedding.weight]["momentum_buffer"]._nnz() <= 6


def test_lbfgs_takes_them_as_dense():
    losses = {}
    for sparse in (False, True):
        mica.manual_seed(0)
        embedding = nn.Embedding(6, 2, sparse=sparse)
        optimizer = mica.optim.LBFGS(embedding.parameters(), max_iter=3)

        def closure(embedding=embedding, optimizer=optimizer):
            optimizer.zero_grad()
            loss = (embedding(mica.tensor([1, 2])) ** 2).sum()
            loss.backward()
            return loss

        losses[sparse] = [optimizer.step(closure).item() for _ in range(2)]
    assert losses[True] == losses[False]


REFUSALS = [
    ("Adam", {}, "Adam does not support sparse gradients, please consider SparseAdam instead"),
    ("AdamW", {"weight_decay": 0.1}, "Adam does not support sparse gradients, please consider SparseAdam instead"),
    *((n, {}, f"{n} does not support sparse gradients") for n in ("Adamax", "NAdam", "RAdam", "RMSprop", "Adadelta")),
    *((n, {}, f"{n} does not support sparse gradients") for n in ("Rprop", "ASGD", "Adafactor", "Muon")),
    ("SGD", {"fused": True}, "`_fused_sgd` does not support sparse gradients"),
    ("Adagrad", {"fused": True}, "`fused` does not support sparse grad or complex param"),
    ("Adagrad", {"weight_decay": 0.1}, "weight_decay option is not compatible with sparse gradients"),
]


@pytest.mark.parametrize("name, options, message", REFUSALS)
def test_refusals_change_nothing(name, options, message):
    weight = nn.Parameter(mica.ones(3, 2))
    optimizer = getattr(mica.optim, name)([weight], **options)
    before = {k: v.clone() for k, v in optimizer.state[weight].items()}
    weight.grad = mica.sparse_coo_tensor([[0, 2]], mica.ones(2, 2), (3, 2))
    with pytest.raises(RuntimeError, match=message):
        optimizer.step()
    assert weight.eq(1).all()
    assert all(optimizer.state[weight][k].equal(v) for k, v in before.items())
