"""torch.utils.cpp_extension: an extension written for torch compiles against Mica and runs."""

import os
import pathlib
import subprocess
import sys
import textwrap

import mica as torch
import pytest
from mica.utils import cpp_extension
from mica.utils.benchmark import Timer

SOURCE = pathlib.Path(__file__).with_name("extension_source.cpp")


@pytest.fixture(scope="module")
def extension(tmp_path_factory):
    folder = tmp_path_factory.mktemp("extension")
    return cpp_extension.load("mica_test_extension", [SOURCE], extra_cflags=["-O0"], build_directory=str(folder))


@pytest.mark.xdist_group("cpp_extension")
class TestLoaded:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
    def test_dispatch_by_dtype(self, extension, dtype):
        x = torch.arange(6, dtype=dtype)
        assert torch.equal(extension.scale(x, by=3), x * 3)
        assert torch.equal(extension.scale(x), x * 2)

    def test_dispatch_refuses_other_dtypes(self, extension):
        with pytest.raises(NotImplementedError, match="\"scale\" not implemented for 'Long'"):
            extension.scale(torch.arange(3))

    def test_checks_raise(self, extension):
        with pytest.raises(RuntimeError, match="x must be contiguous"):
            extension.scale(torch.ones(2, 3).t())

    def test_accessors_follow_strides(self, extension):
        x = torch.arange(12).reshape(3, 4).t()
        assert extension.trace_of(x).item() == x.diagonal().sum().item()
        assert extension.trace_of(x).dtype == torch.float64
        with pytest.raises(RuntimeError, match="TensorAccessor expected 2 dims but tensor has 1"):
            extension.trace_of(torch.ones(3))

    def test_the_cell_of_the_tutorial(self, extension):
        generator = torch.Generator().manual_seed(0)
        sizes = [(2, 3), (12, 7), (1, 12), (2, 4), (2, 4)]
        x, w, b, h, c = (torch.randn(s, generator=generator) for s in sizes)
        new_h, new_c, slope = extension.lltm_forward(x, w, b, h, c)
        gates = torch.addmm(b, torch.cat([h, x], 1), w.t()).chunk(3, 1)
        expected = c + torch.nn.functional.elu(gates[2]) * gates[0].sigmoid()
        torch.testing.assert_close(new_c, expected)
        torch.testing.assert_close(new_h, expected.tanh() * gates[1].sigmoid())
        torch.testing.assert_close(slope, gates[0].sigmoid() * (1 - gates[0].sigmoid()))

    def test_functions_with_a_backward(self, extension):
        x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
        extension.cube(x).sum().backward()
        assert x.grad.tolist() == [3.0, 12.0]
        assert torch.autograd.gradcheck(extension.cube, (x,))

    def test_values_cross_the_border(self, extension):
        made, dims, word = extension.describe(None, [2, 2], torch.int32, torch.device("cpu"), 7)
        assert made.tolist() == [[7, 7], [7, 7]] and made.dtype == torch.int32 and (dims, word) == (0, "made")
        given, dims, word = extension.describe(torch.ones(4), (2, 2), torch.float64, torch.device("cpu"), 1.5)
        assert given.dtype == torch.float64 and given.shape == (2, 2) and (dims, word) == (1, "given")
        with pytest.raises(TypeError, match="incompatible function arguments"):
            extension.describe("a string", [2], torch.int32, torch.device("cpu"), 7)

    def test_a_tensor_keeps_its_identity(self, extension):
        x = torch.ones(2)
        assert extension.describe(x, [2], torch.float32, torch.device("cpu"), 0)[0].data_ptr() == x.data_ptr()

    @pytest.mark.parametrize(
        ("kind", "error", "words"),
        [
            ("index", IndexError, "index 7 is out of range"),
            ("value", ValueError, "a bad value"),
            ("engine", RuntimeError, "mat1 and mat2 shapes cannot be multiplied"),
            ("linalg", torch.linalg.LinAlgError, "is not positive-definite"),
            ("std", ValueError, "of the standard library"),
            ("other", RuntimeError, r"a plain error about \[2\]"),
        ],
    )
    def test_errors_become_pythons(self, extension, kind, error, words):
        with pytest.raises(error, match=words):
            extension.fail_with(kind)

    def test_a_python_error_passes_through_the_engine(self, extension):
        class Fails(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.clone()

            @staticmethod
            def backward(ctx, grad):
                raise KeyError("from Python")

        with pytest.raises(KeyError, match="from Python"):
            extension.run_backward(Fails.apply(torch.ones(2, requires_grad=True)))

    def test_operators_are_registered(self, extension):
        a, b = torch.ones(3), torch.full((3,), 2.0)
        ops = torch.ops.mica_test_extension
        assert ops.muladd(a, b, 0.5).tolist() == [2.5, 2.5, 2.5]
        assert ops.muladd(a.to("meta"), b.to("meta"), 0.5).is_meta
        assert ops.count([a, b]) == 2
        assert str(ops.count.default._schema) == "mica_test_extension::count(Tensor[] _0) -> int"

    def test_nothing_is_compiled_twice(self, extension, tmp_path):
        folder = pathlib.Path(extension.__file__).parent
        before = sorted(p.name for p in folder.iterdir())
        again = cpp_extension.load("mica_test_extension", [SOURCE], extra_cflags=["-O0"], build_directory=str(folder))
        assert sorted(p.name for p in folder.iterdir()) == before
        assert again.__file__ == extension.__file__

    def test_load_inline_and_its_errors(self, tmp_path):
        source = """
            torch::Tensor twice(torch::Tensor x) { return x + x; }
            torch::Tensor within(torch::Tensor x, int64_t i) { TORCH_CHECK_INDEX(i < 3, i, " is outside"); return x[i]; }
        """
        # It has a C++ runtime of its own, so neither it nor the engine knows the other's exceptions.
        module = cpp_extension.load_inline(
            "mica_test_inline",
            source,
            functions=["twice", "within"],
            extra_cflags=["-O0"],
            extra_ldflags=["-static-libstdc++"],
            build_directory=str(tmp_path),
        )
        assert module.twice(torch.ones(2)).tolist() == [2, 2]
        assert "twice" in module.twice.__doc__
        with pytest.raises(IndexError, match="7 is outside"):
            module.within(torch.ones(2), 7)
        with pytest.raises(IndexError, match="index 2 out of range for tensor of size \\[2\\] at dimension 0"):
            module.within(torch.ones(2), 2)
        with pytest.raises(RuntimeError, match="Error building extension 'mica_test_wrong': (.|\n)*error"):
            cpp_extension.load_inline(
                "mica_test_wrong", "#error no", functions=[], build_directory=str(tmp_path), no_implicit_headers=True
            )

    def test_statements_in_cpp_are_timed(self, tmp_path, monkeypatch):
        monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
        timer = Timer(
            "count += twice(x.size(0));",
            "int64_t count = 0; torch::Tensor x = torch::ones({3});",
            "int64_t twice(int64_t n) { return 2 * n; }",
            language="c++",
        )
        measured = timer.timeit(1000)
        assert 0 < measured.median < 1e-3 and measured.task_spec.stmt == "count += twice(x.size(0));"
        with pytest.raises(NotImplementedError, match="Python statements only"):
            timer.collect_callgrind()
        with pytest.raises(ValueError, match="sees no globals of Python"):
            Timer("x;", globals={"x": 1}, language="cpp")
        with pytest.raises(ValueError, match="Invalid language `rust`"):
            Timer("x", language="rust")


def test_a_setup_script_gets_what_it_asks_for(tmp_path):
    """The compiler is a script that writes down how it was called: a real one would take half a minute."""
    compiler = tmp_path / "compiler"
    compiler.write_text(
        f"#!{sys.executable}\nimport sys\nopen({str(tmp_path / 'calls')!r}, 'a').write(' '.join(sys.argv[1:]) + chr(10))\n"
        "for i, a in enumerate(sys.argv):\n    if a == '-o': open(sys.argv[i + 1], 'w').close()\n"
    )
    compiler.chmod(0o755)
    (tmp_path / "pack").mkdir()
    (tmp_path / "op.cpp").write_text("#include <torch/extension.h>\n")
    (tmp_path / "setup.py").write_text(
        textwrap.dedent("""
        import mica._as_torch.alias
        from setuptools import setup
        from mica.utils.cpp_extension import BuildExtension, CppExtension
        setup(name="op", ext_modules=[CppExtension("pack.op", ["op.cpp"], extra_compile_args={"cxx": ["-DMINE"]})],
              cmdclass={"build_ext": BuildExtension.with_options(use_ninja=False)})
    """)
    )
    pytest.importorskip("setuptools")
    environment = os.environ | {
        "CC": str(compiler),
        "CXX": str(compiler),
        "LDSHARED": f"{compiler} -shared",
        "LDCXXSHARED": f"{compiler} -shared",
    }
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=tmp_path,
        env=environment,
        check=True,
        timeout=120,
    )
    compiled, linked = (tmp_path / "calls").read_text().splitlines()
    assert "-DTORCH_EXTENSION_NAME=op" in compiled and "-DMINE" in compiled and "-std=c++20" in compiled
    assert all(f"-I{p}" in compiled for p in cpp_extension.include_paths())
    assert "-lmica" in linked


def test_the_missing_build_folder_is_named(tmp_path):
    with pytest.raises(RuntimeError, match="The build directory does not exist"):
        cpp_extension.load("x", [SOURCE], build_directory=str(tmp_path / "no"))
    with pytest.raises(FileNotFoundError, match="there is no source"):
        cpp_extension.load("x", [tmp_path / "no.cpp"], build_directory=str(tmp_path))


def test_headers_are_where_the_paths_say():
    folders = cpp_extension.include_paths()
    for header in ("mica/mica.h", "mica/generated/ops.h", "torch/extension.h", "ATen/ATen.h", "c10/cuda/CUDAGuard.h"):
        assert any(os.path.exists(os.path.join(f, header)) for f in folders), header
    assert os.path.exists(os.path.join(cpp_extension.library_paths()[0], "libmica.so"))
