"""Writers of logs for TensorBoard."""

import os
import time

from mica.utils.tensorboard import summary
from mica.utils.tensorboard._convert_np import make_np

__all__ = ["FileWriter", "SummaryWriter"]


class FileWriter:
    """Writes events to a file in a folder."""

    def __init__(self, log_dir, max_queue=10, flush_secs=120, filename_suffix=""):
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self.event_writer = EventFileWriter(str(log_dir), max_queue, flush_secs, filename_suffix)

    def get_logdir(self):
        return self.event_writer.get_logdir()

    def add_event(self, event, step=None, walltime=None):
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self.event_writer.add_event(event)

    def add_summary(self, summary, global_step=None, walltime=None):
        from tensorboard.compat.proto import event_pb2

        self.add_event(event_pb2.Event(summary=summary), global_step, walltime)

    def flush(self):
        self.event_writer.flush()

    def close(self):
        self.event_writer.close()

    def reopen(self):
        self.event_writer.reopen()


class SummaryWriter:
    """Writes numbers, histograms, pictures and texts to a folder that TensorBoard shows."""

    def __init__(self, log_dir=None, comment="", purge_step=None, max_queue=10, flush_secs=120, filename_suffix=""):
        if not log_dir:
            import socket
            from datetime import datetime

            log_dir = os.path.join(
                "runs", datetime.now().strftime("%b%d_%H-%M-%S") + "_" + socket.gethostname() + comment
            )
        self.log_dir = log_dir
        self.purge_step, self.max_queue, self.flush_secs, self.filename_suffix = (
            purge_step,
            max_queue,
            flush_secs,
            filename_suffix,
        )
        self.file_writer = self.all_writers = None
        self._get_file_writer()
        # Buckets of histograms: of growing width away from zero.
        positive = [1e-12 * 1.1**i for i in range(775)]
        self.default_bins = [-v for v in reversed(positive)] + [0] + positive

    def _get_file_writer(self):
        if self.file_writer is None:
            self.file_writer = FileWriter(self.log_dir, self.max_queue, self.flush_secs, self.filename_suffix)
            self.all_writers = {self.file_writer.get_logdir(): self.file_writer}
            if self.purge_step is not None:
                from tensorboard.compat.proto.event_pb2 import Event, SessionLog

                self.file_writer.add_event(Event(step=self.purge_step, file_version="brain.Event:2"))
                self.file_writer.add_event(Event(step=self.purge_step, session_log=SessionLog(status=SessionLog.START)))
        return self.file_writer

    def get_logdir(self):
        """The folder that the events are written to."""
        return self.log_dir

    def add_scalar(self, tag, scalar_value, global_step=None, walltime=None, new_style=False, double_precision=False):
        """Write a number."""
        made = summary.scalar(tag, scalar_value, new_style=new_style, double_precision=double_precision)
        self._get_file_writer().add_summary(made, global_step, walltime)

    def add_scalars(self, main_tag, tag_scalar_dict, global_step=None, walltime=None):
        """Write several numbers, each to a folder of its own, to be shown together."""
        base = self._get_file_writer().get_logdir()
        for tag, value in tag_scalar_dict.items():
            folder = f"{base}/{main_tag.replace('/', '_')}_{tag}"
            writer = self.all_writers.get(folder)
            if writer is None:
                writer = self.all_writers[folder] = FileWriter(
                    folder, self.max_queue, self.flush_secs, self.filename_suffix
                )
            writer.add_summary(summary.scalar(main_tag, value), global_step, walltime)

    def add_histogram(self, tag, values, global_step=None, bins="tensorflow", walltime=None, max_bins=None):
        """Write a histogram of values."""
        bins = self.default_bins if isinstance(bins, str) and bins == "tensorflow" else bins
        self._get_file_writer().add_summary(summary.histogram(tag, values, bins, max_bins), global_step, walltime)

    def add_histogram_raw(
        self, tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts, global_step=None, walltime=None
    ):
        """Write a histogram whose buckets are counted."""
        made = summary.histogram_raw(tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts)
        self._get_file_writer().add_summary(made, global_step, walltime)

    def add_image(self, tag, img_tensor, global_step=None, walltime=None, dataformats="CHW"):
        """Write a picture."""
        self._get_file_writer().add_summary(
            summary.image(tag, img_tensor, dataformats=dataformats), global_step, walltime
        )

    def add_images(self, tag, img_tensor, global_step=None, walltime=None, dataformats="NCHW"):
        """Write pictures in a grid."""
        self._get_file_writer().add_summary(
            summary.image(tag, img_tensor, dataformats=dataformats), global_step, walltime
        )

    def add_figure(self, tag, figure, global_step=None, close=True, walltime=None):
        """Write a figure of Matplotlib."""
        import numpy
        from matplotlib import pyplot
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        pixels = numpy.asarray(canvas.buffer_rgba())[:, :, :3]
        if close:
            pyplot.close(figure)
        self.add_image(tag, pixels, global_step, walltime, dataformats="HWC")

    def add_text(self, tag, text_string, global_step=None, walltime=None):
        """Write a text."""
        self._get_file_writer().add_summary(summary.text(tag, text_string), global_step, walltime)

    def add_hparams(self, hparam_dict, metric_dict, hparam_domain_discrete=None, run_name=None, global_step=None):
        """Write the settings of a run and its measures."""
        if type(hparam_dict) is not dict or type(metric_dict) is not dict:
            raise TypeError("hparam_dict and metric_dict should be dictionary.")
        made = summary.hparams(hparam_dict, metric_dict, hparam_domain_discrete)
        folder = os.path.join(self._get_file_writer().get_logdir(), run_name or str(time.time()))
        with SummaryWriter(log_dir=folder) as writer:
            for each in made:
                writer.file_writer.add_summary(each, global_step)
            for key, value in metric_dict.items():
                writer.add_scalar(key, value, global_step)

    def add_pr_curve(self, tag, labels, predictions, global_step=None, num_thresholds=127, weights=None, walltime=None):
        """Write a curve of precision over recall."""
        from mica.utils.tensorboard._pr_curve import counts

        table = counts(make_np(labels), make_np(predictions), num_thresholds, weights)
        self._get_file_writer().add_summary(summary.pr_curve_raw(tag, *table, num_thresholds), global_step, walltime)

    def _absent(self, *args, **kwargs):
        raise NotImplementedError(
            "this kind of summary is not written by Mica: scalars, histograms, images, figures, texts, hparams and curves are"
        )

    add_graph = add_embedding = add_video = add_audio = add_mesh = add_onnx_graph = add_custom_scalars = _absent

    def flush(self):
        """Let what is written be in the files."""
        for writer in (self.all_writers or {}).values():
            writer.flush()

    def close(self):
        """End the files."""
        for writer in (self.all_writers or {}).values():
            writer.flush()
            writer.close()
        self.file_writer = self.all_writers = None

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()
