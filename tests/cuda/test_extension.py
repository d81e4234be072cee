"""torch.utils.cpp_extension with CUDA sources: kernels written for torch compile by nvcc against Mica and run."""

import pathlib
import shutil
import subprocess
import sys
import textwrap

import mica as torch
import pytest
from mica.utils import cpp_extension

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA backend or no GPU"),
    pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc"),
]
HERE = pathlib.Path(__file__).parent
SOURCES = [HERE / "extension_binding.cpp", HERE / "extension_kernels.cu"]


@pytest.fixture(scope="module")
def extension(tmp_path_factory):
    folder = tmp_path_factory.mktemp("extension")
    return cpp_extension.load("mica_cuda_extension", SOURCES, extra_cflags=["-O0"], build_directory=str(folder))


@pytest.mark.xdist_group("cuda_extension")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kernels_run_on_the_current_stream(extension, dtype):
    x, y = torch.randn(1000, device="cuda", dtype=dtype), torch.randn(1000, device="cuda", dtype=dtype)
    expected = (y + 3 * x).cpu()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        extension.axpy_(y, x, 3)
        stream.synchronize()
    torch.testing.assert_close(y.cpu(), expected)
    extension.axpy_(y[:0], x[:0])


@pytest.mark.xdist_group("cuda_extension")
def test_accessors_follow_strides(extension):
    generator = torch.Generator().manual_seed(0)
    sizes = [(5, 3), (12, 7), (1, 12), (5, 4), (4, 5)]
    x, w, b, h, c = (torch.randn(s, generator=generator) for s in sizes)
    c = c.t()
    new_h, new_c = extension.cell(x.cuda(), w.cuda(), b.cuda(), h.cuda(), c.cuda())
    gates = torch.addmm(b, torch.cat([h, x], 1), w.t()).chunk(3, 1)
    expected = c + torch.nn.functional.elu(gates[2]) * gates[0].sigmoid()
    torch.testing.assert_close(new_c.cpu(), expected)
    torch.testing.assert_close(new_h.cpu(), expected.tanh() * gates[1].sigmoid())


@pytest.mark.xdist_group("cuda_extension")
def test_checks_raise(extension):
    x = torch.ones(2, 3, device="cuda")
    with pytest.raises(RuntimeError, match="x must be a CUDA tensor"):
        extension.axpy_(x, torch.ones(2, 3))
    with pytest.raises(RuntimeError, match="y must be contiguous"):
        extension.axpy_(x.t(), x)
    with pytest.raises(NotImplementedError, match="\"axpy_\" not implemented for 'Long'"):
        extension.axpy_(x.long(), x.long())


def test_sources_as_text(tmp_path):
    kernel = """
    __global__ void square_kernel(const float* x, float* y, int n) {
      const int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n) y[i] = x[i] * x[i];
    }
    torch::Tensor square(torch::Tensor x) {
      auto y = torch::empty_like(x);
      square_kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
      return y;
    }
    """
    module = cpp_extension.load_inline(
        "mica_cuda_inline", cpp_sources="torch::Tensor square(torch::Tensor x);", cuda_sources=kernel,
        functions=["square"], extra_cflags=["-O0"], build_directory=str(tmp_path),
    )  # fmt: skip
    x = torch.randn(1000, device="cuda")
    torch.cuda.synchronize()
    y = module.square(x)
    torch.cuda.synchronize()
    assert torch.equal(y, x * x)


def test_a_setup_script(tmp_path):
    pytest.importorskip("setuptools")
    for source in SOURCES:
        shutil.copy(source, tmp_path)
    (tmp_path / "setup.py").write_text(
        textwrap.dedent("""
        import mica._as_torch.alias
        from setuptools import setup
        from mica.utils.cpp_extension import BuildExtension, CUDAExtension
        sources = ["extension_binding.cpp", "extension_kernels.cu"]
        setup(name="cell", ext_modules=[CUDAExtension("cell", sources, extra_compile_args={"cxx": ["-O0"], "nvcc": ["-O2"]})],
              cmdclass={"build_ext": BuildExtension})
    """)
    )
    subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=tmp_path, check=True, timeout=300)
    program = "import mica, cell; y = mica.zeros(3, device='cuda'); cell.axpy_(y, mica.ones(3, device='cuda'), 2); print(y.tolist())"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=100, capture_output=True)
    assert done.stdout.decode().strip() == "[2.0, 2.0, 2.0]"
