"""The records of .pt2 archives, by their names: what `torch.export.save` writes, and what programs add."""

import io
import os
import zipfile

from mica.export._archive import _write_aligned

__all__ = ["PT2ArchiveReader", "PT2ArchiveWriter", "is_pt2_package"]


class PT2ArchiveWriter:
    """Writes an archive record by record, into a file at a path or into a file object.

    At the end of a with block the archive says that it is one (`archive_format`, `archive_version`).

    Example::

        with PT2ArchiveWriter("model.pt2") as archive:
            archive.write_string("extra/notes", "trained on Monday")
    """

    def __init__(self, archive_path_or_buffer):
        target = archive_path_or_buffer
        by_path = isinstance(target, (str, os.PathLike))
        self._folder = os.path.splitext(os.path.basename(os.fspath(target)))[0] if by_path else "archive"
        self.archive_file = zipfile.ZipFile(target, "w", zipfile.ZIP_STORED)
        self._names = []

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for name, text in (("archive_format", "pt2"), ("archive_version", "0")):
            if not self.has_record(name):
                self.write_string(name, text)
        self.close()

    def has_record(self, name):
        """Whether there is a record of this name."""
        return name in self._names

    def count_prefix(self, prefix):
        """How many names of records begin with a text."""
        return sum(name.startswith(prefix) for name in self._names)

    def write_bytes(self, name, data):
        """Write bytes as a record; RuntimeError if there is one of this name."""
        if not isinstance(data, bytes):
            raise AssertionError(f"Expected bytes but got {type(data)}")
        if self.has_record(name):
            raise RuntimeError(f"Tried to serialize file twice: {name}")
        _write_aligned(self.archive_file, f"{self._folder}/{name}", data)
        self._names.append(name)

    def write_string(self, name, data):
        """Write a text as a record."""
        if not isinstance(data, str):
            raise AssertionError(f"Expected string but got {type(data)}")
        self.write_bytes(name, data.encode())

    def write_file(self, name, file_path):
        """Write the bytes of a file as a record."""
        if not os.path.isfile(file_path):
            raise AssertionError(f"{file_path} is not a valid file path")
        with open(file_path, "rb") as file:
            self.write_bytes(name, file.read())

    def write_folder(self, archive_dir, folder_dir):
        """Write the files of a folder and of those in it, with their paths in the folder below `archive_dir`."""
        if not os.path.isdir(folder_dir):
            raise AssertionError(f"{folder_dir} is not a valid folder path")
        for place, _, files in sorted(os.walk(folder_dir)):
            for each in sorted(files):
                path = os.path.join(place, each)
                inner = os.path.relpath(path, folder_dir).replace(os.sep, "/")
                self.write_file(f"{archive_dir}/{inner}", path)

    def close(self):
        """End the archive: no more can be written."""
        if self.archive_file.fp is None:
            return
        for name, text in ((".data/version", "6\n"), ("byteorder", "little")):
            if not self.has_record(name):
                self.write_string(name, text)
        self.archive_file.close()


class PT2ArchiveReader:
    """Reads the records of an archive, from a path or a file object; RuntimeError for another file."""

    def __init__(self, archive_path_or_buffer):
        try:
            self.archive_file = zipfile.ZipFile(archive_path_or_buffer)
        except (OSError, zipfile.BadZipFile) as error:
            raise RuntimeError(f"open file failed: {error}") from error
        names = self.archive_file.namelist()
        self._folder = names[0].partition("/")[0] if names else ""
        found = self.read_string("archive_format")
        if found != "pt2":
            raise AssertionError(f"Invalid archive format {found!r}: expected 'pt2'")

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.archive_file.close()

    def read_bytes(self, name):
        """The bytes of a record; RuntimeError if there is none of this name."""
        try:
            return self.archive_file.read(f"{self._folder}/{name}")
        except KeyError:
            raise RuntimeError(f"failed locating file {name}: file not found in the archive") from None

    def read_string(self, name):
        """The text of a record."""
        return self.read_bytes(name).decode()

    def archive_version(self):
        """The version that the archive says it has."""
        return int(self.read_string("archive_version"))

    def get_file_names(self):
        """The names of all records."""
        return [name.partition("/")[2] for name in self.archive_file.namelist()]


def is_pt2_package(serialized_model):
    """Whether a file, given by its path, by its bytes or as an object, is a .pt2 archive."""
    given = io.BytesIO(serialized_model) if isinstance(serialized_model, bytes) else serialized_model
    try:
        with zipfile.ZipFile(given) as archive:
            names = {name.partition("/")[2]: name for name in archive.namelist()}
            return "archive_format" in names and archive.read(names["archive_format"]) == b"pt2"
    except (OSError, zipfile.BadZipFile):
        return False
