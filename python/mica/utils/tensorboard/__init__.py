"""Logs for TensorBoard. Needs the package tensorboard."""

try:
    import tensorboard as _tensorboard  # noqa: F401
except ImportError as _error:
    raise ImportError("torch.utils.tensorboard needs the package tensorboard: pip install tensorboard") from _error

from tensorboard.summary.writer.record_writer import RecordWriter

from mica.utils.tensorboard.writer import FileWriter, SummaryWriter

__all__ = ["FileWriter", "RecordWriter", "SummaryWriter"]
