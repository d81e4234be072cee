"""Times statements."""

import enum
import textwrap
import timeit

from mica.utils.benchmark.callgrind import CopyIfCallgrind, collect
from mica.utils.benchmark.measurement import Measurement, TaskSpec, set_torch_threads


def timer():
    """The time, after all devices have finished their work."""
    from mica import accelerator

    if accelerator.is_available():
        accelerator.synchronize()
    return timeit.default_timer()


def _default_timer():
    from mica import accelerator

    return timer if accelerator.is_available() else timeit.default_timer


class Language(enum.Enum):
    """What a statement is written in."""

    PYTHON = 0
    CPP = 1


_CPP = """
#include <chrono>
{global_setup}
double timeit(int64_t number) {{
  py::gil_scoped_release without_python;
  {setup}
  {{
    {stmt}
  }}
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t run = 0; run < number; ++run) {{
    {stmt}
  }}
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}}
"""


class _CppTimer:
    """Statements in C++, compiled at the first measurement into a folder that later programs find again."""

    def __init__(self, stmt, setup, global_setup):
        self._source = _CPP.format(stmt=stmt, setup=setup, global_setup=global_setup)
        self._compiled = None

    def timeit(self, number):
        if self._compiled is None:
            import hashlib

            from mica.utils import cpp_extension

            name = f"timed_{hashlib.sha256(self._source.encode()).hexdigest()[:16]}"
            self._compiled = cpp_extension.load_inline(name, self._source, functions=["timeit"])
        return self._compiled.timeit(number)


class Timer:
    """Times a statement after a setup, with so many threads; label, sub_label, description and env are for tables."""

    def __init__(
        self,
        stmt="pass",
        setup="pass",
        global_setup="",
        timer=None,
        globals=None,
        label=None,
        sub_label=None,
        description=None,
        env=None,
        num_threads=1,
        language="python",
    ):
        if not isinstance(stmt, str):
            raise ValueError("Currently only a `str` stmt is supported.")
        is_cpp = language in (Language.CPP, "cpp", "c++")
        if not is_cpp and language not in (Language.PYTHON, "python", "py"):
            raise ValueError(f"Invalid language `{language}`.")
        if is_cpp and (globals or timer is not None):
            raise ValueError("A statement in C++ sees no globals of Python, and has a clock of its own.")
        if global_setup and not is_cpp:
            raise ValueError(
                f"global_setup is C++ only, got `{global_setup}`. Most likely this code can simply be moved to `setup`."
            )
        import mica

        # The statement sees torch as the program does: the one in its globals, or Mica.
        self._globals = {"torch": mica, **(globals or {})}
        self._given_globals, self._globals = self._globals, CopyIfCallgrind.unwrap_all(self._globals)
        stmt, setup = textwrap.dedent(stmt).strip(), textwrap.dedent(setup).strip()
        if is_cpp:
            setup = "" if setup == "pass" else setup
            self._timer = _CppTimer(stmt, setup, global_setup)
        else:
            self._timer = timeit.Timer(stmt=stmt, setup=setup, timer=timer or _default_timer(), globals=self._globals)
        self._task_spec = TaskSpec(
            stmt=stmt,
            setup=setup,
            global_setup=global_setup,
            label=label,
            sub_label=sub_label,
            description=description,
            env=env,
            num_threads=num_threads,
        )

    def _time(self, number):
        return max(self._timer.timeit(number), 1e-9)

    def timeit(self, number=1000000):
        """One measurement of that many runs."""
        with set_torch_threads(self._task_spec.num_threads):
            self._time(max(number // 100, 2))  # warms up
            return Measurement(number, [self._time(number)], self._task_spec)

    def repeat(self, repeat=-1, number=-1):
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def autorange(self, callback=None):
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def _block_size(self, min_run_time):
        """So many runs that starting the clock no longer counts."""
        with set_torch_threads(self._task_spec.num_threads):
            overhead = sorted(self._time(0) for _ in range(5))[2]
            number = 1
            while True:
                taken = self._time(number)
                if (overhead / taken <= 1e-4 and taken >= min_run_time / 1000) or taken > min_run_time:
                    return number
                number *= 10

    def _measure(self, number, done, min_run_time, max_run_time, callback):
        times, total = [], 0.0
        with set_torch_threads(self._task_spec.num_threads):
            while total < min_run_time or (total < max_run_time and not done(times)):
                taken = self._time(number)
                times.append(taken)
                total += taken
                if callback is not None:
                    callback(number, taken)
        return Measurement(number, times, self._task_spec)

    def blocked_autorange(self, callback=None, min_run_time=0.2):
        """Measure blocks of as many runs as the clock needs, until `min_run_time` seconds are over."""
        number = self._block_size(min_run_time)
        return self._measure(number, lambda times: True, min_run_time, min_run_time, callback)

    def adaptive_autorange(self, threshold=0.1, *, min_run_time=0.01, max_run_time=10.0, callback=None):
        """Measure until the interquartile range is below `threshold` times the median."""
        number = self._block_size(min_run_time)

        def close_together(times):
            if len(times) <= 3:
                return False
            return Measurement(number, times, self._task_spec).meets_confidence(threshold)

        return self._measure(number, close_together, min_run_time, max_run_time, callback)

    def collect_callgrind(self, number=100, *, repeats=None, collect_baseline=True, retain_out_file=False):
        """The instructions of that many runs, counted by Valgrind in another process; a list of them with repeats."""
        if isinstance(self._timer, _CppTimer):
            raise NotImplementedError("collect_callgrind counts the instructions of Python statements only")
        options = {"collect_baseline": collect_baseline, "retain_out_file": retain_out_file}
        found = [collect(self._task_spec, self._given_globals, number, **options) for _ in range(repeats or 1)]
        return found[0] if repeats is None else tuple(found)
