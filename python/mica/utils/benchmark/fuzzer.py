"""Random inputs for benchmarks: parameters are drawn, and tensors of the sizes that they say are made. NumPy draws."""

import itertools
import math

from mica import _C

_DISTRIBUTIONS = ("loguniform", "uniform")


class FuzzedParameter:
    """A number between minval and maxval, or a choice: distribution is "uniform", "loguniform" or {value: probability}."""

    def __init__(self, name, minval=None, maxval=None, distribution=None, strict=False):
        if distribution is None:
            raise AssertionError("`distribution` must be specified")
        if isinstance(distribution, dict):
            if any(each < 0 for each in distribution.values()):
                raise AssertionError("Probabilities cannot be negative")
            if abs(sum(distribution.values()) - 1) > 1e-5:
                raise AssertionError("Distribution is not normalized")
            if minval is not None or maxval is not None:
                which = "minval" if minval is not None else "maxval"
                raise AssertionError(f"When passing a custom distribution, '{which}' must be None")
        elif distribution not in _DISTRIBUTIONS:
            raise AssertionError(f"Unknown distribution: {distribution}")
        self._name, self._minval, self._maxval = name, minval, maxval
        self._distribution = distribution
        self.strict = strict

    @property
    def name(self):
        return self._name

    def sample(self, state):
        """A value, from a RandomState of NumPy's."""
        if isinstance(self._distribution, dict):
            index = state.choice(len(self._distribution), p=tuple(self._distribution.values()))
            return list(self._distribution)[index]
        if self._distribution == "loguniform":
            value = int(2 ** state.uniform(low=math.log2(self._minval), high=math.log2(self._maxval)))
            return min(max(value, self._minval), self._maxval)
        if isinstance(self._minval, int) and isinstance(self._maxval, int):
            return int(state.randint(low=self._minval, high=self._maxval + 1, dtype="int64"))
        return state.uniform(low=self._minval, high=self._maxval)


class ParameterAlias:
    """Stands for the value of another parameter."""

    def __init__(self, alias_to):
        self.alias_to = alias_to

    def __repr__(self):
        return f"ParameterAlias[alias_to: {self.alias_to}]"


def dtype_size(dtype):
    """Bytes of an element."""
    return dtype.itemsize


def prod(values, base=1):
    """The product, in integers that never overflow."""
    return math.prod(map(int, values), start=base)


class FuzzedTensor:
    """A tensor of random sizes, steps and order of dimensions, within bounds."""

    def __init__(
        self,
        name,
        size,
        steps=None,
        probability_contiguous=0.5,
        min_elements=None,
        max_elements=None,
        max_allocation_bytes=None,
        dim_parameter=None,
        roll_parameter=None,
        dtype=_C.float32,
        cuda=False,
        tensor_constructor=None,
    ):
        self._name, self._size, self._steps = name, size, steps
        self._probability_contiguous = probability_contiguous
        self._min_elements, self._max_elements = min_elements, max_elements
        self._max_allocation_bytes = max_allocation_bytes
        self._dim_parameter = dim_parameter
        self._dtype, self._cuda = dtype, cuda
        self._tensor_constructor = tensor_constructor

    @property
    def name(self):
        return self._name

    @staticmethod
    def default_tensor_constructor(size, dtype, **kwargs):
        if dtype.is_floating_point or dtype.is_complex:
            return _C.rand(size, dtype=dtype)
        return _C.randint(1, 127, size, dtype=dtype)

    def _get_size_and_steps(self, params):
        dim = len(self._size) if self._dim_parameter is None else params[self._dim_parameter]

        def resolved(values):
            known = [params.get(each, each) for each in values][:dim]
            return tuple(known + [1] * (dim - len(known)))

        size, steps = resolved(self._size), resolved(self._steps or ())
        return size, steps, tuple(length * step for length, step in zip(size, steps, strict=True))

    def satisfies_constraints(self, params):
        """Whether a tensor of these parameters is within the bounds."""
        size, _, allocated = self._get_size_and_steps(params)
        count, nbytes = prod(size), prod(allocated, base=dtype_size(self._dtype))
        return not (
            (self._max_elements is not None and count > self._max_elements)
            or (self._min_elements is not None and count < self._min_elements)
            or (self._max_allocation_bytes is not None and nbytes > self._max_allocation_bytes)
        )

    def _make_tensor(self, params, state):
        import numpy as np

        size, steps, allocated = self._get_size_and_steps(params)
        made = (self._tensor_constructor or self.default_tensor_constructor)(
            size=allocated, dtype=self._dtype, **params
        )
        if self._cuda:
            made = made.cuda()
        dim = len(size)
        order = np.arange(dim)
        if state.rand() > self._probability_contiguous:
            while dim > 1 and np.all(order == np.arange(dim)):
                order = state.permutation(dim)
            made = made.permute(order.tolist()).contiguous().permute(np.argsort(order).tolist())
        tensor = made[tuple(slice(0, length * step, step) for length, step in zip(size, steps, strict=True))]
        properties = {
            "numel": int(tensor.numel()),
            "order": order,
            "steps": steps,
            "is_contiguous": tensor.is_contiguous(),
            "dtype": str(self._dtype),
        }
        return tensor, properties


class FuzzedSparseTensor(FuzzedTensor):
    """A sparse tensor whose density, number of sparse dimensions and coalescence are parameters."""

    def __init__(
        self,
        name,
        size,
        min_elements=None,
        max_elements=None,
        dim_parameter=None,
        sparse_dim=None,
        nnz=None,
        density=None,
        coalesced=None,
        dtype=_C.float32,
        cuda=False,
    ):
        super().__init__(
            name=name,
            size=size,
            min_elements=min_elements,
            max_elements=max_elements,
            dim_parameter=dim_parameter,
            dtype=dtype,
            cuda=cuda,
        )
        self._density, self._coalesced, self._sparse_dim = density, coalesced, sparse_dim

    @staticmethod
    def sparse_tensor_constructor(size, dtype, sparse_dim, nnz, is_coalesced):
        """Values at random places; where it is not to be coalesced, each place comes twice."""
        if isinstance(size, int):
            size = [size] * sparse_dim
        if nnz and all(each <= 0 for each in size[:sparse_dim]):
            raise AssertionError("invalid arguments")
        values = FuzzedTensor.default_tensor_constructor([nnz, *size[sparse_dim:]], dtype)
        indices = _C.rand(sparse_dim, nnz)
        indices = (indices * _C.tensor(list(size[:sparse_dim])).unsqueeze(1).to(indices.dtype)).long()
        if not is_coalesced:
            values = _C.cat([values, _C.randn_like(values) if dtype.is_floating_point else values], 0)
            indices = _C.cat([indices, indices], 1)
        import mica

        made = mica.sparse_coo_tensor(indices, values, tuple(size))
        return made.coalesce() if is_coalesced else made

    def _make_tensor(self, params, state):
        size, _, _ = self._get_size_and_steps(params)
        density = params["density"]
        nnz = math.ceil(sum(size) * density)
        if nnz > sum(size):
            raise AssertionError("nnz cannot exceed total number of elements")
        sparse_dim = min(params["sparse_dim"] if self._sparse_dim else len(size), len(size))
        tensor = self.sparse_tensor_constructor(size, self._dtype, sparse_dim, nnz, params["coalesced"])
        if self._cuda:
            tensor = tensor.cuda()
        properties = {
            "numel": int(tensor.numel()),
            "shape": tensor.size(),
            "is_coalesced": tensor.is_coalesced(),
            "density": density,
            "sparsity": 1.0 - density,
            "sparse_dim": tensor.sparse_dim(),
            "dense_dim": tensor.dense_dim(),
            "is_hybrid": len(size) > tensor.sparse_dim(),
            "dtype": str(self._dtype),
        }
        return tensor, properties


def _flat(values, cls):
    return tuple(itertools.chain.from_iterable([each] if isinstance(each, cls) else each for each in values))


class Fuzzer:
    """Draws parameters until they fit all constraints, and makes the tensors. A seed gives the same ones again."""

    def __init__(self, parameters, tensors, constraints=None, seed=None):
        import numpy as np

        if seed is None:
            seed = int(np.random.RandomState().randint(0, 2**32 - 1, dtype=np.int64))
        self._seed = seed
        self._parameters = _flat(parameters, FuzzedParameter)
        self._tensors = _flat(tensors, FuzzedTensor)
        self._constraints = constraints or ()
        both = {each.name for each in self._parameters} & {each.name for each in self._tensors}
        if both:
            raise ValueError(f"Duplicate names in parameters and tensors: {both}")
        self._rejections = self._total_generated = 0

    @property
    def rejection_rate(self):
        return self._rejections / self._total_generated if self._total_generated else 0.0

    def take(self, n):
        """n times (tensors by name, their properties by name, parameters)."""
        import numpy as np

        state = np.random.RandomState(self._seed)
        _C.default_generator.manual_seed(int(state.randint(low=0, high=2**63, dtype=np.int64)))
        for _ in range(n):
            params = self._generate(state)
            made = {each.name: each._make_tensor(params, state) for each in self._tensors}
            yield {k: v[0] for k, v in made.items()}, {k: v[1] for k, v in made.items()}, params

    def _generate(self, state):
        strict = {}
        for _ in range(1000):
            drawn = {}
            for each in self._parameters:
                drawn[each.name] = strict[each.name] if each.name in strict else each.sample(state)
                if each.strict:
                    strict[each.name] = drawn[each.name]
            params = self._resolve_aliases(drawn)
            self._total_generated += 1
            fits = all(constraint(params) for constraint in self._constraints)
            if fits and all(each.satisfies_constraints(params) for each in self._tensors):
                return params
            self._rejections += 1
        raise ValueError("Failed to generate a set of valid parameters.")

    @staticmethod
    def _resolve_aliases(params):
        def value(name, seen):
            found = params[name]
            if not isinstance(found, ParameterAlias):
                return found
            if name in seen:
                raise ValueError(f"ParameterAlias cycle detected\n{params}")
            return value(found.alias_to, {*seen, name})

        return {name: value(name, ()) for name in params}
