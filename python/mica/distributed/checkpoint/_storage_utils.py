"""Which storage a checkpoint is in, where only its name is given."""

from mica.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter


def _storage_setup(storage, checkpoint_id, reader=False):
    """The reader or writer that is given, or the one for the name."""
    if storage is not None:
        if checkpoint_id is not None:
            storage.reset(checkpoint_id)
        return storage
    if not checkpoint_id:
        raise RuntimeError("`checkpoint_id` must be specified if storage_reader/storage_writer is None.")
    kind = FileSystemReader if reader else FileSystemWriter
    # A folder that can only be read is still good to read from.
    if reader or kind.validate_checkpoint_id(checkpoint_id):
        return kind(checkpoint_id)
    raise RuntimeError(
        "Cannot detect which StorageReader or StorageWriter to use. Please specify the storage_reader/storage_writer."
    )
