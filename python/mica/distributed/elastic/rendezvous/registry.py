"""The ways to meet that are there: static and c10d. Packages may bring others."""

from mica.distributed.elastic.rendezvous.api import rendezvous_handler_registry as handler_registry

__all__ = ["get_rendezvous_handler"]


def _create_static_handler(params):
    from mica.distributed.elastic.rendezvous import static_tcp_rendezvous

    return static_tcp_rendezvous.create_rdzv_handler(params)


def _create_c10d_handler(params):
    from mica.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend
    from mica.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler

    backend, store = create_backend(params)
    return create_handler(store, backend, params)


def _create_etcd_handler(params):
    raise NotImplementedError(
        "the rendezvous through etcd is not in Mica: use --rdzv-backend=c10d, which needs no server"
    )


def _register_default_handlers():
    handler_registry.register("static", _create_static_handler)
    handler_registry.register("c10d", _create_c10d_handler)
    handler_registry.register("etcd", _create_etcd_handler)
    handler_registry.register("etcd-v2", _create_etcd_handler)


def get_rendezvous_handler(params):
    """The handler that the parameters ask for."""
    return handler_registry.create_handler(params)
