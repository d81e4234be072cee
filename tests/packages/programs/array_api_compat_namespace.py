"""array_api_compat: the array API standard's names over torch, with their dtypes, axes and defaults."""

import array_api_compat as compat
import array_api_compat.torch as xp
import torch

x = torch.arange(6.0).reshape(2, 3) - 2
print("torch", compat.is_torch_array(x), compat.is_array_api_obj(x), compat.array_namespace(x) is xp)
print("facts", compat.device(x), compat.size(x), compat.is_lazy_array(x), compat.is_writeable_array(x))
print("absent", [name for part in (xp, xp.linalg, xp.fft) for name in part.__all__ if not hasattr(part, name)])
info = xp.__array_namespace_info__()
print("info", info.capabilities(), info.default_dtypes(), sorted(info.dtypes(kind="integral")))
print("sums", xp.sum(torch.tensor([1, 2], dtype=torch.int8)).dtype, xp.prod(torch.tensor([True, True])).dtype)
print("running", xp.cumulative_sum(x, axis=0, include_initial=True).tolist(), xp.var(x, axis=1, correction=1).tolist())
print("kinds", xp.astype(x, torch.int32).dtype, xp.isdtype(x.dtype, "real floating"), xp.result_type(torch.int8, x))
print(
    "take", xp.take(x, torch.tensor([0, 1]), axis=1).tolist(), xp.take_along_axis(x, torch.tensor([[0], [1]]), axis=1)
)
print(
    "search", xp.searchsorted(torch.tensor([1.0, 2, 3]), torch.tensor([2.5])), xp.nonzero(x), xp.clip(x, 0, 2).tolist()
)
print("shapes", xp.expand_dims(x, axis=0).shape, xp.tile(x, (2, 1)).shape, xp.permute_dims(x, (1, 0)).shape)
print("orders", xp.sort(x, descending=True).tolist(), xp.roll(x, 1, axis=0).tolist(), xp.unique_values(x).tolist())
matrix = torch.tensor([[4.0, 1], [1, 3]])
print(
    "linalg",
    xp.linalg.solve(matrix, xp.ones(2)),
    xp.linalg.matrix_norm(matrix),
    xp.linalg.trace(matrix),
    xp.vecdot(x, x),
)
print(
    "fft", xp.fft.fft(xp.asarray([1.0, 2, 3])), xp.fft.fftfreq(4), xp.fft.irfft(xp.fft.rfft(xp.asarray([1.0, 2, 3, 4])))
)
