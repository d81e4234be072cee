"""Calls that torch warns of, and neighbours of theirs that it does not.

`python tests/recorded/warning_cases.py LIBRARY` prints, as JSON, the warnings of every case: those of the first run and
those of the second, since some are given once. Every case runs in a child of its own, where nothing has been said yet.
"""

import importlib
import json
import os
import re
import sys
import warnings

CASES = {
    # gradients
    "grad of a non-leaf": "y = leaf() * 2\ny.grad",
    "grad of a retained non-leaf": "y = leaf() * 2\ny.retain_grad()\ny.grad",
    "grad of a leaf": "leaf().grad",
    "grad of a tensor without gradient": "torch.ones(2).grad",
    "grad of a view of a leaf": "leaf()[0].grad",
    "hasattr grad of a non-leaf": "hasattr(leaf() * 2, 'grad')",
    "_grad of a non-leaf": "(leaf() * 2)._grad",
    "set grad of a non-leaf": "y = leaf() * 2\ny.grad = None",
    "grad of a non-leaf after retained backward": "y = leaf() * 2\ny.retain_grad()\ny.sum().backward()\ny.grad",
    "a step of LBFGS": "x = leaf()\ntorch.optim.LBFGS([x]).step(lambda: x.sum())",
    "asarray of a leaf": "torch.asarray(leaf())",
    "asarray of a leaf, copied": "torch.asarray(leaf(), copy=True)",
    "asarray of a leaf that says what it wants": "torch.asarray(leaf(), requires_grad=False)",
    "asarray of a tensor without gradient": "torch.asarray(torch.ones(2))",
    "grad of a detached tensor": "(leaf() * 2).detach().grad",
    "grad of a non-leaf within no_grad": "y = leaf() * 2\nwith torch.no_grad():\n    y.grad",
    "float of a leaf": "float(torch.tensor(1.5, requires_grad=True))",
    "int of a leaf": "int(torch.tensor(1.5, requires_grad=True))",
    "complex of a leaf": "complex(torch.tensor(1.5, requires_grad=True))",
    "bool of a leaf": "bool(torch.tensor(1.5, requires_grad=True))",
    "item of a leaf": "torch.tensor(1.5, requires_grad=True).item()",
    "tolist of a leaf": "leaf().tolist()",
    "float of a non-leaf": "float(leaf().sum())",
    "float of a non-leaf within no_grad": "y = leaf().sum()\nwith torch.no_grad():\n    float(y)",
    "float of a detached tensor": "float(leaf().sum().detach())",
    "format of a non-leaf": "f'{leaf().sum():.3f}'",
    "math of a non-leaf": "import math\nmath.sqrt(leaf().sum())",
    "fill_ with a tensor that requires grad": "torch.zeros(2).fill_(torch.tensor(1.0, requires_grad=True))",
    "a scalar argument that requires grad": "torch.clamp(torch.ones(2), torch.tensor(0.5, requires_grad=True).item())",
    "tensor of tensors that require grad": "torch.tensor([torch.tensor(1.0, requires_grad=True), 2.0])",
    "backward with create_graph": "leaf().sum().backward(create_graph=True)",
    "grad with create_graph": "x = leaf()\ntorch.autograd.grad(x.sum(), x, create_graph=True)",
    "autograd.backward with create_graph": "torch.autograd.backward(leaf().sum(), create_graph=True)",
    "backward with inputs and create_graph": "x = leaf()\n(x * x).sum().backward(create_graph=True, inputs=[x])",
    "is_leaf without": "(leaf() * 2).is_leaf",
    "anomaly mode": "with torch.autograd.detect_anomaly():\n    leaf().sum().backward()",
    "saved variables": (
        "class F(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    def forward(ctx, x):\n"
        "        ctx.save_for_backward(x)\n"
        "        return x * 2\n"
        "    @staticmethod\n"
        "    def backward(ctx, g):\n"
        "        ctx.saved_variables\n"
        "        return g * 2\n"
        "F.apply(leaf()).sum().backward()"
    ),
    "Variable with volatile": "torch.autograd.Variable(torch.ones(2), volatile=True)",
    "backward hook of a module": (
        "m = torch.nn.Linear(2, 2)\nm.register_backward_hook(lambda m, i, o: None)\nm(leaf()).sum().backward()"
    ),
    "full backward hook without gradient of inputs": (
        "m = torch.nn.Linear(2, 2)\nm.register_full_backward_hook(lambda m, i, o: None)\nm(torch.ones(2)).sum().backward()"
    ),
    "an optimizer of a loss without gradient": "torch.optim.SGD([leaf()], lr=0.1).step()",
    # tensors from others
    "tensor of a tensor": "torch.tensor(torch.ones(2))",
    "tensor of a tensor that requires grad": "torch.tensor(leaf())",
    "as_tensor of a tensor": "torch.as_tensor(torch.ones(2))",
    "new_tensor of a tensor": "torch.ones(2).new_tensor(torch.ones(2))",
    "sparse tensor of tensors": "torch.sparse_coo_tensor([[0, 1]], torch.ones(2), (2,))",
    "csr tensor": "torch.ones(2, 2).to_sparse_csr()",
    "compressed tensor": "torch.sparse_csr_tensor([0, 1], [0], [1.0], (1, 1))",
    "nested tensor": "torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])",
    "jagged nested tensor": "torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)",
    "from_numpy of a read-only array": "a = numpy.ones(3)\na.flags.writeable = False\ntorch.from_numpy(a)",
    "as_tensor of a read-only array": "a = numpy.ones(3)\na.flags.writeable = False\ntorch.as_tensor(a)",
    "asarray of a read-only array": "a = numpy.ones(3)\na.flags.writeable = False\ntorch.asarray(a)",
    "tensor of a read-only array": "a = numpy.ones(3)\na.flags.writeable = False\ntorch.tensor(a)",
    "from_numpy of a writable array": "torch.from_numpy(numpy.ones(3))",
    "frombuffer of bytes": "torch.frombuffer(b'\\x00\\x01', dtype=torch.uint8)",
    "frombuffer of a bytearray": "torch.frombuffer(bytearray(b'\\x00\\x01'), dtype=torch.uint8)",
    "tensor of a list of arrays": "torch.tensor([numpy.ones(2), numpy.ones(2)])",
    "as_tensor of a list of arrays": "torch.as_tensor([numpy.ones(2), numpy.ones(2)])",
    "tensor of a list of numpy numbers": "torch.tensor([numpy.float32(1), numpy.float32(2)])",
    "Tensor of a list of arrays": "torch.Tensor([numpy.ones(2), numpy.ones(2)])",
    "typed storage": "torch.ones(2).storage()",
    "typed storage by class": "torch.FloatStorage(2)",
    "untyped storage": "torch.ones(2).untyped_storage()",
    "is_shared of a typed storage": "torch.ones(2).storage().is_shared()",
    "set_default_tensor_type": "torch.set_default_tensor_type(torch.FloatTensor)",
    # casts
    "complex to real": "torch.ones(2, dtype=torch.complex64).to(torch.float32)",
    "complex to real by float": "torch.ones(2, dtype=torch.complex64).float()",
    "complex to integers": "torch.ones(2, dtype=torch.complex64).long()",
    "complex to bool": "torch.ones(2, dtype=torch.complex64).bool()",
    "complex copied into real": "torch.ones(2).copy_(torch.ones(2, dtype=torch.complex64))",
    "complex assigned into real": "torch.ones(2)[0] = torch.ones((), dtype=torch.complex64)",
    "complex to half": "torch.ones(2, dtype=torch.complex64).half()",
    "real of complex": "torch.ones(2, dtype=torch.complex64).real",
    "float of a complex tensor": "float(torch.tensor(1 + 0j))",
    "complex half": "torch.ones(2, dtype=torch.complex32)",
    "complex half of a cast": "torch.ones(2, dtype=torch.complex64).to(torch.chalf)",
    "gradient of complex to real": "x = torch.ones(2, requires_grad=True)\n(x + 1j).sum().abs().backward()",
    "module to complex": "torch.nn.Linear(2, 2).to(torch.complex64)",
    "module call with complex": "m = torch.nn.Linear(2, 2)\nm.to(dtype=torch.cfloat)",
    # names that are old
    "T of three dimensions": "torch.ones(2, 3, 4).T",
    "T of two dimensions": "torch.ones(2, 3).T",
    "T of one dimension": "torch.ones(2).T",
    "T of no dimension": "torch.tensor(1.0).T",
    "H of two dimensions": "torch.ones(2, 3).H",
    "H of no dimension": "torch.tensor(1.0).H",
    "mT of two dimensions": "torch.ones(2, 3).mT",
    "range": "torch.range(0, 3)",
    "cross without dim": "torch.cross(torch.ones(2, 3), torch.ones(2, 3))",
    "cross with dim": "torch.cross(torch.ones(2, 3), torch.ones(2, 3), dim=1)",
    "cross method without dim": "torch.ones(2, 3).cross(torch.ones(2, 3))",
    "linalg.cross": "torch.linalg.cross(torch.ones(2, 3), torch.ones(2, 3))",
    "qr": "torch.qr(torch.eye(2))",
    "qr method": "torch.eye(2).qr()",
    "svd": "torch.svd(torch.eye(2))",
    "cholesky": "torch.cholesky(torch.eye(2))",
    "cholesky_solve": "torch.cholesky_solve(torch.eye(2), torch.eye(2))",
    "lu": "torch.lu(torch.eye(2))",
    "lu_solve": "torch.lu_solve(torch.ones(2, 1), *torch.linalg.lu_factor(torch.eye(2)))",
    "triangular_solve": "torch.triangular_solve(torch.eye(2), torch.eye(2))",
    "chain_matmul": "torch.chain_matmul(torch.eye(2), torch.eye(2))",
    "norm": "torch.norm(torch.ones(2))",
    "floor_divide": "torch.floor_divide(torch.ones(2), 2)",
    "floor division": "torch.ones(2) // 2",
    "reversed floor division": "2 // torch.ones(2)",
    "true_divide": "torch.true_divide(torch.ones(2), 2)",
    "meshgrid": "torch.meshgrid(torch.ones(2), torch.ones(3))",
    "meshgrid with indexing": "torch.meshgrid(torch.ones(2), torch.ones(3), indexing='ij')",
    "stft without return_complex": "torch.stft(torch.ones(20), 4, return_complex=False)",
    "stft without window": "torch.stft(torch.ones(20), 4, return_complex=True)",
    "stft with window": "torch.stft(torch.ones(20), 4, window=torch.ones(4), return_complex=True)",
    "istft": "torch.istft(torch.ones(3, 5, dtype=torch.complex64), 4)",
    "add in the old order": "torch.add(torch.ones(2), 2, torch.ones(2))",
    "add in the old order with a name": "torch.ones(2).add(2, torch.ones(2))",
    "nonzero": "torch.ones(2).nonzero()",
    "nonzero as a function": "torch.nonzero(torch.ones(2))",
    "nonzero as a tuple": "torch.nonzero(torch.ones(2), as_tuple=True)",
    "std of one element": "torch.std(torch.ones(1))",
    "var of one element": "torch.ones(1).var()",
    "var_mean of one element": "torch.var_mean(torch.ones(1))",
    "std without correction of one element": "torch.std(torch.ones(1), correction=0)",
    "var of no elements": "torch.ones(0).var(unbiased=False)",
    "cov of one observation": "torch.cov(torch.ones(2, 1))",
    "cov of two observations": "torch.cov(torch.ones(2, 2))",
    "searchsorted of a non-contiguous tensor": "torch.searchsorted(torch.arange(8)[::2], torch.arange(3))",
    "searchsorted of non-contiguous values": "torch.searchsorted(torch.arange(8), torch.arange(6)[::2])",
    "bucketize of non-contiguous boundaries": "torch.bucketize(torch.arange(3), torch.arange(8)[::2])",
    "resize": "torch.ones(2).resize(2)",
    "resize_as": "torch.ones(2).resize_as(torch.ones(2))",
    "resize_ of a tensor with names": "torch.ones(4).resize_(2, 2)",
    "lstsq": "torch.linalg.lstsq(torch.eye(2), torch.eye(2))",
    "matrix_rank": "torch.linalg.matrix_rank(torch.eye(2))",
    "vander": "torch.vander(torch.arange(3))",
    "is_tensor": "torch.is_tensor(torch.ones(2))",
    "tensor_split": "torch.tensor_split(torch.arange(4), 2)",
    "size mismatch of an expand in place": "torch.ones(2, 2).add_(torch.ones(2))",
    "in place on an expanded tensor": "x = torch.ones(1).expand(3)\nx.sum()",
    "bernoulli": "torch.bernoulli(torch.full((2,), 0.5))",
    "normal of a mean": "torch.normal(torch.ones(2), 1.0)",
    "einsum": "torch.einsum('ij,jk', torch.eye(2), torch.eye(2))",
    "a kthvalue": "torch.kthvalue(torch.arange(3.0), 1)",
    # masks and indices
    "where with bytes": "torch.where(torch.tensor([1, 0], dtype=torch.uint8), torch.ones(2), torch.zeros(2))",
    "index with bytes": "torch.ones(2)[torch.tensor([1, 0], dtype=torch.uint8)]",
    "put many at bytes": "torch.ones(2)[torch.tensor([1, 1], dtype=torch.uint8)] = torch.zeros(2)",
    "put at bytes twice": "m = torch.tensor([1, 0], dtype=torch.uint8)\ntorch.ones(2, 2)[m, m] = 0",
    "arange into too few": "torch.arange(5, out=torch.empty(3))",
    "arange into too many": "torch.arange(1, 5, 2, out=torch.empty(2, 3))",
    "arange into as many": "torch.arange(6, out=torch.empty(2, 3))",
    "arange into none": "torch.arange(6, out=torch.empty(0))",
    "linspace into too few": "torch.linspace(0, 1, 5, out=torch.empty(3))",
    "index_put_ with an expanded tensor": "torch.ones(3)[torch.tensor([0, 0])] = 1.0",
    "index with a list": "torch.ones(2, 2)[[0, 1]]",
    "index with lists within a list": "torch.ones(2, 2)[[[0, 1], [0, 1]]]",
    "index with numpy booleans": "torch.ones(2)[numpy.array([True, False])]",
    "scatter with reduce": "torch.zeros(2).scatter(0, torch.tensor([0]), torch.ones(1), reduce='add')",
    "scatter_ with reduce": "torch.zeros(2).scatter_(0, torch.tensor([0]), torch.ones(1), reduce='multiply')",
    "scatter_reduce": "torch.zeros(2).scatter_reduce(0, torch.tensor([0]), torch.ones(1), 'sum')",
    "index_reduce": "torch.zeros(2).index_reduce(0, torch.tensor([0]), torch.ones(1), 'prod')",
    "segment_reduce": "torch.segment_reduce(torch.ones(2), 'sum', lengths=torch.tensor([2]))",
    "bitwise not of a bool": "~torch.tensor(True)",
    "iteration of a tensor": "list(torch.ones(2))",
    "len of a tensor": "len(torch.ones(2))",
    "all of bytes": "torch.ones(2, dtype=torch.uint8).all()",
    "logical of bytes": "torch.ones(2, dtype=torch.uint8).logical_not()",
    "gather": "torch.ones(2).gather(0, torch.tensor([0]))",
    "take_along_dim": "torch.take_along_dim(torch.ones(2), torch.tensor([0]), 0)",
    # out=
    "out of the wrong size": "torch.add(torch.ones(2), 1, out=torch.ones(3))",
    "out of no elements": "torch.add(torch.ones(2), 1, out=torch.empty(0))",
    "out of the right size": "torch.add(torch.ones(2), 1, out=torch.ones(2))",
    "out of the wrong size of a product": "torch.mm(torch.eye(2), torch.eye(2), out=torch.ones(3))",
    "out of the wrong size of a sum": "torch.sum(torch.ones(2, 2), 0, out=torch.ones(3))",
    "out of the wrong size of a sort": "torch.sort(torch.ones(2), out=(torch.ones(3), torch.ones(2, dtype=torch.long)))",
    "out of the wrong size of cat": "torch.cat([torch.ones(2), torch.ones(2)], out=torch.ones(3))",
    "out of the wrong size of zeros": "torch.zeros(4, out=torch.ones(3))",
    "out of the wrong size of randn": "torch.randn(4, out=torch.ones(3))",
    "out of the wrong size of eye": "torch.eye(2, out=torch.ones(3))",
    "out of the wrong size of linspace": "torch.linspace(0, 1, 4, out=torch.ones(3))",
    "out of the wrong size of gather": "torch.gather(torch.ones(2), 0, torch.tensor([0]), out=torch.ones(3))",
    "out of the wrong size of index_select": "torch.index_select(torch.ones(2), 0, torch.tensor([0]), out=torch.ones(3))",
    "out of the wrong size of where": "torch.where(torch.tensor([True]), torch.ones(1), torch.ones(1), out=torch.ones(3))",
    "out of the wrong size of nonzero": "torch.nonzero(torch.ones(2), out=torch.ones(3, dtype=torch.long))",
    "out of the wrong size of masked_select": "torch.masked_select(torch.ones(2), torch.tensor([True, False]), out=torch.ones(3))",
    "out of the wrong size of cumsum": "torch.cumsum(torch.ones(2), 0, out=torch.ones(3))",
    "out of the wrong size of max": "torch.max(torch.ones(2, 2), 0, out=(torch.ones(3), torch.ones(2, dtype=torch.long)))",
    "out of the wrong size of svd": "torch.linalg.inv(torch.eye(2), out=torch.ones(3))",
    "out of the wrong size of stack": "torch.stack([torch.ones(2), torch.ones(2)], out=torch.ones(3))",
    "out of the wrong size of bmm": "torch.bmm(torch.ones(1, 2, 2), torch.ones(1, 2, 2), out=torch.ones(3))",
    "out of the wrong size of unary": "torch.exp(torch.ones(2), out=torch.ones(3))",
    "out of the wrong size of comparison": "torch.lt(torch.ones(2), 1, out=torch.ones(3, dtype=torch.bool))",
    # layers and losses
    "softmax without dim": "F.softmax(torch.ones(2, 2))",
    "softmin without dim": "F.softmin(torch.ones(2, 2))",
    "log_softmax without dim": "F.log_softmax(torch.ones(2, 2))",
    "Softmax without dim": "torch.nn.Softmax()(torch.ones(2, 2))",
    "LogSoftmax without dim": "torch.nn.LogSoftmax()(torch.ones(2, 2))",
    "softmax with dim": "F.softmax(torch.ones(2, 2), dim=1)",
    "gumbel_softmax with eps": "F.gumbel_softmax(torch.ones(2, 2), eps=1e-8)",
    "tanh": "F.tanh(torch.ones(2))",
    "sigmoid": "F.sigmoid(torch.ones(2))",
    "upsample": "F.upsample(torch.ones(1, 1, 2, 2), scale_factor=2)",
    "upsample_nearest": "F.upsample_nearest(torch.ones(1, 1, 2, 2), scale_factor=2)",
    "upsample_bilinear": "F.upsample_bilinear(torch.ones(1, 1, 2, 2), scale_factor=2)",
    "interpolate": "F.interpolate(torch.ones(1, 1, 2, 2), scale_factor=2.5, mode='bilinear')",
    "interpolate with recompute_scale_factor": (
        "F.interpolate(torch.ones(1, 1, 2, 2), scale_factor=2.5, recompute_scale_factor=True)"
    ),
    "grid_sample without align_corners": "F.grid_sample(torch.ones(1, 1, 2, 2), torch.zeros(1, 2, 2, 2))",
    "grid_sample with align_corners": "F.grid_sample(torch.ones(1, 1, 2, 2), torch.zeros(1, 2, 2, 2), align_corners=False)",
    "affine_grid without align_corners": "F.affine_grid(torch.ones(1, 2, 3), (1, 1, 2, 2))",
    "affine_grid of one element": "F.affine_grid(torch.ones(1, 2, 3), (1, 1, 1, 2), align_corners=True)",
    "dropout2d of two dimensions": "F.dropout2d(torch.ones(2, 2))",
    "dropout2d of three dimensions": "F.dropout2d(torch.ones(2, 2, 2))",
    "dropout1d of two dimensions": "F.dropout1d(torch.ones(2, 2))",
    "dropout3d of three dimensions": "F.dropout3d(torch.ones(2, 2, 2))",
    "feature_alpha_dropout": "F.feature_alpha_dropout(torch.ones(2, 2, 2))",
    "mse_loss of unequal sizes": "F.mse_loss(torch.ones(2), torch.ones(2, 2))",
    "l1_loss of unequal sizes": "F.l1_loss(torch.ones(2), torch.ones(2, 2))",
    "smooth_l1_loss of unequal sizes": "F.smooth_l1_loss(torch.ones(2), torch.ones(2, 2))",
    "huber_loss of unequal sizes": "F.huber_loss(torch.ones(2), torch.ones(2, 2))",
    "MSELoss of unequal sizes": "torch.nn.MSELoss()(torch.ones(2), torch.ones(2, 2))",
    "gaussian_nll_loss": "F.gaussian_nll_loss(torch.ones(2, 2), torch.ones(2, 2), torch.ones(2, 1))",
    "poisson_nll_loss with size_average": "F.poisson_nll_loss(torch.ones(2), torch.ones(2), size_average=True)",
    "kl_div with mean": "F.kl_div(torch.zeros(2, 2), torch.ones(2, 2))",
    "kl_div with batchmean": "F.kl_div(torch.zeros(2, 2), torch.ones(2, 2), reduction='batchmean')",
    "KLDivLoss": "torch.nn.KLDivLoss()(torch.zeros(2, 2), torch.ones(2, 2))",
    "mse_loss with size_average": "F.mse_loss(torch.ones(2), torch.ones(2), size_average=False)",
    "l1_loss with reduce": "F.l1_loss(torch.ones(2), torch.ones(2), reduce=False)",
    "nll_loss with size_average": "F.nll_loss(torch.ones(2, 2), torch.tensor([0, 1]), size_average=True)",
    "cross_entropy with reduce": "F.cross_entropy(torch.ones(2, 2), torch.tensor([0, 1]), reduce=True)",
    "MSELoss with size_average": "torch.nn.MSELoss(size_average=True)",
    "BCELoss with reduce": "torch.nn.BCELoss(reduce=False)",
    "elementwise_mean": "F.mse_loss(torch.ones(2), torch.ones(2), reduction='elementwise_mean')",
    "multi_head_attention masks of two types": (
        "m = torch.nn.MultiheadAttention(4, 2)\nx = torch.ones(3, 1, 4)\n"
        "m(x, x, x, key_padding_mask=torch.zeros(1, 3, dtype=torch.bool), attn_mask=torch.zeros(3, 3))"
    ),
    "TransformerEncoder that cannot nest": (
        "torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(4, 2, 8, norm_first=True), 1)"
    ),
    "TransformerEncoder not batch first": "torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(4, 2, 8), 1)",
    "TransformerEncoder that nests": (
        "torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 1)"
    ),
    "TransformerEncoder that nests with a mask": (
        "m = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 1).eval()\n"
        "with torch.no_grad():\n"
        "    m(torch.ones(1, 3, 4), src_key_padding_mask=torch.tensor([[False, False, True]]))"
    ),
    "Transformer": "torch.nn.Transformer(4, 2, 1, 1, 8)",
    "LSTM with dropout of one layer": "torch.nn.LSTM(2, 2, dropout=0.5)",
    "RNN with dropout of two layers": "torch.nn.RNN(2, 2, 2, dropout=0.5)",
    "InstanceNorm of the wrong number of channels": "torch.nn.InstanceNorm1d(3)(torch.ones(1, 2, 4))",
    "conv with padding same and an even kernel": "F.conv1d(torch.ones(1, 1, 4), torch.ones(1, 1, 2), padding='same')",
    "conv with padding same and an odd kernel": "F.conv1d(torch.ones(1, 1, 4), torch.ones(1, 1, 3), padding='same')",
    "max_pool of return_indices": "F.max_pool1d(torch.ones(1, 1, 4), 2, return_indices=True)",
    "lp_pool": "F.lp_pool1d(torch.ones(1, 1, 4), 2.0, 2)",
    "embedding_bag": "F.embedding_bag(torch.tensor([0, 1]), torch.ones(2, 2), torch.tensor([0]))",
    "one_hot": "F.one_hot(torch.tensor([0, 1]))",
    "pad_sequence": "torch.nn.utils.rnn.pad_sequence([torch.ones(2), torch.ones(3)])",
    "init of no elements": "torch.nn.init.kaiming_uniform_(torch.ones(0, 2))",
    "init zeros of no elements": "torch.nn.init.xavier_uniform_(torch.ones(0, 2))",
    "init by its old name": "torch.nn.init.uniform(torch.ones(2))",
    "init normal by its old name": "torch.nn.init.xavier_normal(torch.ones(2, 2))",
    "trunc_normal_ far from the mean": "torch.nn.init.trunc_normal_(torch.ones(2), mean=10.0)",
    "calculate_gain": "torch.nn.init.calculate_gain('relu')",
    "weight_norm": "torch.nn.utils.weight_norm(torch.nn.Linear(2, 2))",
    "spectral_norm": "torch.nn.utils.spectral_norm(torch.nn.Linear(2, 2))",
    "clip_grad_norm": "torch.nn.utils.clip_grad_norm([leaf()], 1.0)",
    "clip_grad_norm_ of no gradients": "torch.nn.utils.clip_grad_norm_([leaf()], 1.0)",
    "clip_grad_norm_ of nothing": "torch.nn.utils.clip_grad_norm_((p for p in []), 1.0)",
    "zero_grad with set_to_none": "torch.nn.Linear(2, 2).zero_grad(set_to_none=True)",
    "share_memory": "torch.nn.Linear(2, 2).share_memory()",
    "load_state_dict of a state without metadata": "m = torch.nn.Linear(2, 2)\nm.load_state_dict(dict(m.state_dict()))",
    "state_dict with positional arguments": "torch.nn.Linear(2, 2).state_dict({}, '', False)",
    "a ParameterList in DataParallel": "torch.nn.DataParallel(torch.nn.Linear(2, 2))(torch.ones(2))",
    "Container": "torch.nn.Container(a=torch.nn.Linear(2, 2))",
    "LazyLinear": "torch.nn.LazyLinear(2)",
    "Hardtanh with min_value": "torch.nn.Hardtanh(min_value=-2.0)",
    "Hardtanh with min_val": "torch.nn.Hardtanh(min_val=-2.0)",
    "CrossEntropyLoss of probabilities": "F.cross_entropy(torch.ones(2, 2), torch.ones(2, 2) / 2)",
    "ctc_loss": (
        "F.ctc_loss(torch.ones(4, 1, 3).log_softmax(2), torch.tensor([[1]]), torch.tensor([4]), torch.tensor([1]))"
    ),
    "triplet margin": "F.triplet_margin_loss(torch.ones(2, 2), torch.ones(2, 2), torch.zeros(2, 2))",
    "multilabel margin": "F.multilabel_margin_loss(torch.ones(1, 2), torch.tensor([[0, -1]]))",
    "batch_norm": "torch.nn.BatchNorm1d(2)(torch.ones(2, 2))",
    "scaled_dot_product_attention": "F.scaled_dot_product_attention(*[torch.ones(1, 2, 4)] * 3, is_causal=True)",
    "buffer of Flatten": "torch.nn.Flatten()(torch.ones(2, 2, 2))",
    # optimizers
    "scheduler before optimizer": (
        "o = torch.optim.SGD([leaf()], lr=0.1)\ns = torch.optim.lr_scheduler.StepLR(o, 1)\ns.step()\no.step()\ns.step()"
    ),
    "scheduler after optimizer": (
        "o = torch.optim.SGD([leaf()], lr=0.1)\ns = torch.optim.lr_scheduler.StepLR(o, 1)\no.step()\ns.step()"
    ),
    "get_lr of a scheduler": (
        "o = torch.optim.SGD([leaf()], lr=0.1)\ns = torch.optim.lr_scheduler.StepLR(o, 1)\ns.get_lr()"
    ),
    "step of a scheduler with an epoch": (
        "o = torch.optim.SGD([leaf()], lr=0.1)\ns = torch.optim.lr_scheduler.StepLR(o, 1)\no.step()\ns.step(1)"
    ),
    "ReduceLROnPlateau with an epoch": (
        "o = torch.optim.SGD([leaf()], lr=0.1)\ntorch.optim.lr_scheduler.ReduceLROnPlateau(o).step(1.0, epoch=1)"
    ),
    "OneCycleLR": "torch.optim.lr_scheduler.OneCycleLR(torch.optim.SGD([leaf()], lr=0.1, momentum=0.9), 0.1, 10)",
    "SequentialLR": (
        "o = torch.optim.SGD([leaf()], lr=0.1)\nL = torch.optim.lr_scheduler\n"
        "s = L.SequentialLR(o, [L.ConstantLR(o), L.StepLR(o, 2)], [2])\nfor _ in range(4):\n    o.step()\n    s.step()"
    ),
    "CosineAnnealingWarmRestarts": (
        "o = torch.optim.SGD([leaf()], lr=0.1)\ns = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 2)\no.step()\ns.step()"
    ),
    "duplicate parameters": "x = leaf()\ntorch.optim.SGD([x, x], lr=0.1)",
    "scheduler state": (
        "o = torch.optim.SGD([leaf()], lr=0.1)\ns = torch.optim.lr_scheduler.LambdaLR(o, lambda e: 1.0)\ns.state_dict()"
    ),
    "swa update_bn": "torch.optim.swa_utils.AveragedModel(torch.nn.Linear(2, 2))",
    # data
    "DataLoader with many workers": (  # on a machine of two processors
        "import os\nos.sched_getaffinity = lambda process: {0, 1}\ntorch.utils.data.DataLoader([1, 2], num_workers=9999)"
    ),
    "DataLoader with few workers": "torch.utils.data.DataLoader([1, 2], num_workers=1)",
    "DataLoader with pin_memory": "list(torch.utils.data.DataLoader([1, 2], pin_memory=True))",
    "DataLoader of an iterable that lies about its length": (
        "class D(torch.utils.data.IterableDataset):\n"
        "    def __len__(self):\n        return 1\n"
        "    def __iter__(self):\n        return iter([1, 2])\n"
        "list(torch.utils.data.DataLoader(D()))"
    ),
    "random_split of an empty part": "torch.utils.data.random_split([1, 2], [2, 0])",
    "random_split by shares": "torch.utils.data.random_split([1], [0.5, 0.5])",
    "ChainDataset": "torch.utils.data.ChainDataset([])",
    # the rest
    "cuda.amp.autocast": "torch.cuda.amp.autocast()",
    "cuda.amp.GradScaler": "torch.cuda.amp.GradScaler()",
    "cpu.amp.autocast": "torch.cpu.amp.autocast()",
    "autocast of cuda": "torch.autocast('cuda')",
    "autocast of an unsupported dtype": "torch.autocast('cpu', dtype=torch.float64)",
    "checkpoint without use_reentrant": "torch.utils.checkpoint.checkpoint(lambda x: x * 2, leaf())",
    "checkpoint of nothing that requires grad": (
        "torch.utils.checkpoint.checkpoint(lambda x: x * 2, torch.ones(2), use_reentrant=True)"
    ),
    "checkpoint_sequential": ("torch.utils.checkpoint.checkpoint_sequential([torch.nn.Linear(2, 2)] * 2, 2, leaf())"),
    "load with weights_only False": (
        "import io\nb = io.BytesIO()\ntorch.save(torch.ones(2), b)\nb.seek(0)\ntorch.load(b, weights_only=False)"
    ),
    "load": "import io\nb = io.BytesIO()\ntorch.save(torch.ones(2), b)\nb.seek(0)\ntorch.load(b)",
    "save of a module": "import io\ntorch.save(torch.nn.Linear(2, 2), io.BytesIO())",
    "vmap of chunks": "torch.func.vmap(lambda x: x * 2)(torch.ones(2))",
    "set_float32_matmul_precision": "torch.set_float32_matmul_precision('high')",
    "deterministic cumsum": "torch.use_deterministic_algorithms(True, warn_only=True)\ntorch.ones(2).cumsum(0)\ntorch.use_deterministic_algorithms(False)",
    "set_rng_state": "torch.set_rng_state(torch.get_rng_state())",
    "manual_seed": "torch.manual_seed(1)",
    "fork_rng": "with torch.random.fork_rng():\n    torch.rand(1)",
    "Distribution without arg_constraints": "class D(torch.distributions.Distribution):\n    pass\nD()",
    "LKJCholesky": "torch.distributions.LKJCholesky(2)",
    "profiler": "with torch.autograd.profiler.profile():\n    torch.ones(2) + 1",
    "masked tensor": "torch.masked.masked_tensor(torch.ones(2), torch.tensor([True, False]))",
    "quantized tensor": "torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8)",
    "promote": "torch.ones(2, dtype=torch.int32) + 1.5",
    "pow of a negative integer": "torch.tensor(2) ** 2",
    "default dtype of full": "torch.full((2,), 1)",
    "a division of integers": "torch.tensor(3) / 2",
    "round with decimals": "torch.round(torch.ones(2), decimals=1)",
    "addcdiv of floats": "torch.addcdiv(torch.ones(2), torch.ones(2), torch.ones(2))",
    "dlpack": "torch.from_dlpack(numpy.ones(2))",
    "array of a tensor": "numpy.asarray(torch.ones(2))",
    "numpy number times a tensor": "numpy.float64(2) * torch.ones(2)",
}


# What torch adds about itself: where in its sources a warning arose, and its own pages.
_ABOUT_TORCH = re.compile(r"\s*\(Triggered internally at .*\)$| (See|Refer to|Please file an issue at) http.*$", re.S)


def warnings_of(program, names):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            exec(compile(program, "<case>", "exec"), dict(names))
        except Exception as error:
            return [["error", f"{type(error).__name__}: {error}".split("\n")[0]]]
    return [[w.category.__name__, _ABOUT_TORCH.sub("", str(w.message))] for w in seen]


def in_a_child(program, names):
    """The warnings of two runs of the program, in a process of their own."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            runs = [warnings_of(program, names), warnings_of(program, names)]
            with os.fdopen(writer, "w") as stream:
                json.dump(runs, stream)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        text = stream.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else [[["error", "the process died"]]] * 2


def main():
    import numpy

    library = importlib.import_module(sys.argv[1])
    library.set_num_threads(1)
    sys.modules["torch"] = library
    for part in ("utils.data", "utils.checkpoint", "nn.functional", "optim.swa_utils", "distributions", "masked"):
        importlib.import_module(f"{sys.argv[1]}.{part}")
    names = {
        "torch": library,
        "F": library.nn.functional,
        "numpy": numpy,
        "leaf": lambda: library.ones(2, requires_grad=True),
    }
    only = sys.argv[2:]
    cases = {name: CASES[name] for name in only} if only else CASES
    json.dump({name: in_a_child(program, names) for name, program in cases.items()}, sys.stdout, indent=0)


if __name__ == "__main__":
    main()
