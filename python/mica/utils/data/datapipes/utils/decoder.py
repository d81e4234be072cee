"""Bytes into objects, by the extension of the file that they come from."""

import io
import json
import os.path
import tempfile

from mica.utils.data.datapipes.utils.common import StreamWrapper

__all__ = [
    "Decoder",
    "ImageHandler",
    "MatHandler",
    "audiohandler",
    "basichandlers",
    "extension_extract_fn",
    "handle_extension",
    "imagehandler",
    "mathandler",
    "videohandler",
]


def basichandlers(extension, data):
    """Text, numbers, JSON, pickles and torch's files. A pickle runs what it says: decode those of people you trust."""
    if extension in ("txt", "text", "transcript"):
        return data.decode("utf-8")
    if extension in ("cls", "cls2", "class", "count", "index", "inx", "id"):
        try:
            return int(data)
        except ValueError:
            return None
    if extension in ("json", "jsn"):
        return json.loads(data)
    if extension in ("pyd", "pickle"):
        import pickle

        return pickle.loads(data)
    if extension == "pt":
        from mica.serialization import load

        return load(io.BytesIO(data))
    return None


def handle_extension(extensions, f):
    """A handler that calls f(data) for keys that end in one of the extensions, which stand apart by spaces."""
    wanted = [each.split(".") for each in extensions.lower().split()]

    def handle(key, data):
        parts = key.lower().split(".")
        return f(data) if any(parts[-len(each) :] == each for each in wanted) else None

    return handle


def _image_spec(name):
    """(what holds the image, its numbers, its mode) of a specification's name; None for no such specification."""
    held, rest = "numpy", name
    for prefix, kind in (("torch", "torch"), ("pil", "pil")):
        if name.startswith(prefix):
            held, rest = kind, name[len(prefix) :]
    numbers = "float"
    if held != "pil" and rest.endswith("8"):
        numbers, rest = "uint8", rest[:-1]
    if rest == "" and held != "numpy" and numbers == "float":
        rest = "rgb"
    return (held, None if held == "pil" else numbers, rest) if rest in ("l", "rgb", "rgba") else None


class ImageHandler:
    """Decodes images with Pillow into what the specification says, such as "torchrgb8" or "pil"."""

    def __init__(self, imagespec):
        if _image_spec(imagespec) is None:
            raise AssertionError(f"unknown image specification: {imagespec}")
        self.imagespec = imagespec

    def __call__(self, extension, data):
        if extension.lower() not in ("jpg", "jpeg", "png", "ppm", "pgm", "pbm", "pnm"):
            return None
        try:
            import PIL.Image
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "Package `PIL` is required to be installed for default image decoder."
                "Please use `pip install Pillow` to install the package"
            ) from error
        held, numbers, mode = _image_spec(self.imagespec)
        image = PIL.Image.open(io.BytesIO(data)).convert(mode.upper())
        if held == "pil":
            return image
        import numpy as np

        pixels = np.asarray(image)
        if held == "numpy":
            return pixels if numbers == "uint8" else pixels.astype("f") / 255.0
        from mica import _C

        pixels = _C.tensor(np.ascontiguousarray(np.atleast_3d(pixels).transpose(2, 0, 1)))
        return pixels if numbers == "uint8" else pixels / 255.0


def imagehandler(imagespec):
    return ImageHandler(imagespec)


def _in_a_file(extension, data, read):
    """What a function reads from a file with this content."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, f"file.{extension}")
        with open(path, "wb") as file:
            file.write(data)
        return read(path)


def videohandler(extension, data):
    """Videos, with torchvision."""
    if extension not in ("mp4", "ogv", "mjpeg", "avi", "mov", "h264", "mpg", "webm", "wmv"):
        return None
    try:
        import torchvision.io
    except ImportError as error:
        raise ModuleNotFoundError(
            "Package `torchvision` is required to be installed for default video file loader."
            "Please use `pip install torchvision`to install the package"
        ) from error
    return _in_a_file(extension, data, torchvision.io.read_video)


def audiohandler(extension, data):
    """Sounds, with torchaudio."""
    if extension not in ("flac", "mp3", "sox", "wav", "m4a", "ogg", "wma"):
        return None
    try:
        import torchaudio
    except ImportError as error:
        raise ModuleNotFoundError(
            "Package `torchaudio` is required to be installed for default audio file loader."
            "Please use `pip install torchaudio`to install the package"
        ) from error
    return _in_a_file(extension, data, torchaudio.load)


class MatHandler:
    """Files of MATLAB, with SciPy."""

    def __init__(self, **loadmat_kwargs):
        try:
            import scipy.io
        except ImportError as error:
            raise ModuleNotFoundError(
                "Package `scipy` is required to be installed for mat file.Please use `pip install scipy`"
                "to install the package"
            ) from error
        self.sio = scipy.io
        self.loadmat_kwargs = loadmat_kwargs

    def __call__(self, extension, data):
        return self.sio.loadmat(io.BytesIO(data), **self.loadmat_kwargs) if extension == "mat" else None


def mathandler(**loadmat_kwargs):
    return MatHandler(**loadmat_kwargs)


def extension_extract_fn(pathname):
    """The path's extension, without its dot."""
    return os.path.splitext(pathname)[1][1:]


class Decoder:
    """Gives each (path, data) to handlers until one answers; data that none knows stays as it is."""

    def __init__(self, *handler, key_fn=extension_extract_fn):
        self.handlers = list(handler)
        self.key_fn = key_fn

    def add_handler(self, *handler):
        """Ask these handlers before the others."""
        self.handlers = [*handler, *self.handlers]

    def decode1(self, key, data):
        if not data:
            return data
        stream = data.file_obj if isinstance(data, StreamWrapper) else data
        if isinstance(stream, (io.BufferedIOBase, io.RawIOBase)):
            content = b"".join(data)
            data.close()
            data = content
        for handler in self.handlers:
            decoded = handler(key, data)
            if decoded is not None:
                return decoded
        return data

    def decode(self, data):
        """The decoded data by path, of one pair or of many."""
        if data is None:
            return {}
        decoded = {}
        for path, value in [data] if isinstance(data, tuple) else data:
            if path.startswith("_") and isinstance(value, bytes):
                decoded[path] = value.decode("utf-8")
            else:
                decoded[path] = self.decode1(self.key_fn(path), value)
        return decoded

    def __call__(self, data):
        return self.decode(data)
