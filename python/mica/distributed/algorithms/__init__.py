"""Parts of distributed training that also serve one process."""
