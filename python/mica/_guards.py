"""What is known while a program is compiled: nothing is."""


def active_fake_mode():
    """None: no mode of tensors without data is active."""


def detect_fake_mode(inputs=None):
    """None: tensors have their data."""


class TracingContext:
    """A compilation; there is none."""

    @staticmethod
    def try_get():
        return None

    @staticmethod
    def get():
        raise RuntimeError("TracingContext.get() must be called within an ongoing trace.")


class CompileContext:
    """A compilation; there is none."""

    @classmethod
    def try_get(cls):
        return None

    @classmethod
    def current_compile_id(cls):
        return None
