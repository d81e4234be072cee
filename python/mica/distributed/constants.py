"""How long processes wait for each other."""

from mica.distributed.distributed_c10d import default_pg_nccl_timeout, default_pg_timeout  # noqa: F401
