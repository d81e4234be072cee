"""What tests of exported programs share: a function as a module, the forms of a program, and their comparison."""

import io

import mica as torch
import pytest
from mica import nn
from mica.export import export, load, save


def as_module(function):
    class Calls(nn.Module):
        def forward(self, *args):
            return function(*args)

    return Calls()


def modules(function, example):
    """The program as it is, decomposed, and read from an archive."""
    program, file = export(as_module(function), example), io.BytesIO()
    save(program, file)
    file.seek(0)
    return program.module(), program.run_decompositions().module(), load(file).module()


def same(a, b):
    """Tensors and numbers one by one."""
    a, b = (each if isinstance(each, (tuple, list)) else (each,) for each in (a, b))
    return len(a) == len(b) and all(
        torch.equal(torch.as_tensor(x), torch.as_tensor(y)) for x, y in zip(a, b, strict=True)
    )


def check_program(function, example, others, refused):
    """Every form of a program computes what the function does, and refuses what does not fit."""
    for module in modules(function, example):
        for args in (example, *others):
            assert same(module(*args), function(*args))
        for args in refused:
            with pytest.raises((RuntimeError, IndexError)):
                module(*args)
