"""Packages of exported programs that are ready to run: torch's entry points, with Mica's payload.

torch's packages hold machine code for one kind of machine. Mica needs none: the package is the program's own .pt2 archive,
and a loaded one runs its graph as a compiled function does.
"""

import os

import mica

__all__ = ["AOTICompiledModel", "aoti_compile_and_package", "aoti_load_package"]


class AOTICompiledModel:
    """A program of a package, to be called as the module was that it was exported from."""

    def __init__(self, program):
        self._program = program
        self._module = program.module(check_guards=True)
        self._compiled = mica.compile(self._module.forward)

    def __call__(self, *args, **kwargs):
        with mica.no_grad():
            return self._compiled(*args, **kwargs)

    def get_metadata(self):
        """Where the program was made for: its devices."""
        devices = sorted(
            {value.device.type for value in (*self._program.state_dict.values(), *self._program.constants.values())}
        )
        return {"AOTI_DEVICE_KEY": devices[0] if devices else "cpu"}

    def get_constant_fqns(self):
        """The names of parameters, buffers and constants."""
        return [*self._program.state_dict, *self._program.constants]

    def load_constants(self, constants_map, *, check_full_update, user_managed=False):
        """Have other values for parameters, buffers and constants, by their names.

        They are copied. With `user_managed` they are used as they are: later changes of them count.
        """
        known = {**dict(self._module.named_parameters()), **dict(self._module.named_buffers())}
        unknown = sorted(set(constants_map) - set(known))
        missing = sorted(set(known) - set(constants_map)) if check_full_update else []
        if unknown or missing:
            raise RuntimeError(f"load_constants: the program has no constants {unknown}, and {missing} are not given")
        with mica.no_grad():
            for name, value in constants_map.items():
                if value.shape != known[name].shape or value.dtype != known[name].dtype:
                    raise RuntimeError(
                        f"load_constants: {name} is {known[name].dtype} of {tuple(known[name].shape)}, not {value.dtype} of {tuple(value.shape)}"
                    )
            for name, value in constants_map.items():
                if user_managed:
                    known[name].data = value
                else:
                    known[name].copy_(value)


def aoti_compile_and_package(exported_program, _deprecated_unused_args=None, _deprecated_unused_kwargs=None, *,
                             package_path=None, inductor_configs=None):  # fmt: skip
    """Write a package of an exported program; returns its path."""
    from mica.export import ExportedProgram, save

    if not isinstance(exported_program, ExportedProgram):
        raise ValueError(
            f"aoti_compile_and_package takes an ExportedProgram, but got {type(exported_program).__name__}"
        )
    path = os.path.join(os.getcwd(), "model.pt2") if package_path is None else package_path
    if isinstance(path, (str, os.PathLike)) and not os.fspath(path).endswith(".pt2"):
        raise AssertionError(
            f"Expect package path to be a file ending in .pt2, is None, or is a buffer. Instead got {path}"
        )
    save(exported_program, path)
    return path


def aoti_load_package(path, run_single_threaded=False, device_index=-1):
    """The program of a package that Mica has written, or of an archive of torch.export.save, ready to be called."""
    from mica.export import load

    return AOTICompiledModel(load(path))
