"""The state of a rendezvous, kept under one key of a store."""

import binascii
import os
import tempfile
from base64 import b64decode, b64encode
from datetime import timedelta

from mica.distributed.elastic.events import NodeState, construct_and_record_rdzv_event
from mica.distributed.elastic.rendezvous.api import RendezvousConnectionError, RendezvousError, RendezvousStateError
from mica.distributed.elastic.rendezvous.dynamic_rendezvous import RendezvousBackend
from mica.distributed.elastic.rendezvous.utils import _matches_machine_hostname, parse_rendezvous_endpoint

__all__ = ["C10dRendezvousBackend", "create_backend"]

DEFAULT_PORT = 29400
_UNREACHABLE = "The connection to the C10d store has failed. See inner exception for details."


class C10dRendezvousBackend(RendezvousBackend):
    """A shared state that a machine can change only if it is still what that machine has read."""

    _EMPTY = "Y2FuaW1hZGFt"  # get would wait for a key that nobody has set

    def __init__(self, store, run_id):
        if not run_id:
            raise ValueError("The run id must be a non-empty string.")
        self._store, self._key = store, f"torch.rendezvous.{run_id}"
        self._call_store("compare_set", self._key, "", self._EMPTY)

    @property
    def name(self):
        return "c10d"

    def get_state(self):
        """The state and a token of it, or None if there is none."""
        return self._decode_state(self._call_store("get", self._key))

    def set_state(self, state, token=None):
        """Set the state if it is still the token's. Returns the state then, its token, and whether it is this one."""
        if token is not None and not isinstance(token, bytes):
            found = self.get_state()
            return None if found is None else (*found, False)
        expected = token.decode() if token else self._EMPTY
        found = self._decode_state(self._call_store("compare_set", self._key, expected, b64encode(state).decode()))
        return None if found is None else (*found, found[0] == state)

    def _call_store(self, store_op, *args):
        try:
            return getattr(self._store, store_op)(*args)
        except (ValueError, RuntimeError, TimeoutError, OSError) as error:
            raise RendezvousConnectionError(_UNREACHABLE) from error

    def _decode_state(self, encoded):
        if encoded == self._EMPTY.encode():
            return None
        try:
            return b64decode(encoded, validate=True), encoded
        except binascii.Error as error:
            raise RendezvousStateError("The state object is corrupt. See inner exception for details.") from error


def _create_tcp_store(params):
    """The store at the endpoint: held by this process if the endpoint is this machine and nobody holds it yet."""
    from mica.distributed import TCPStore

    host, port = parse_rendezvous_endpoint(params.endpoint, default_port=DEFAULT_PORT)
    told = params.get_as_bool("is_host")
    is_host = _matches_machine_hostname(host) if told is None else told
    seconds = params.get_as_int("read_timeout", 60)
    if seconds <= 0:
        raise ValueError("The read timeout must be a positive integer.")
    for is_server in (True, False) if is_host else (False,):
        try:
            return TCPStore(host, port, is_master=is_server, multi_tenant=True, timeout=timedelta(seconds=seconds))
        except (ValueError, RuntimeError, TimeoutError, OSError) as error:
            # Another launcher on this machine may hold it already.
            if not is_server or told is not None:
                raise RendezvousConnectionError(_UNREACHABLE) from error
    raise AssertionError


def _create_file_store(params):
    from mica.distributed import FileStore

    path = params.endpoint
    if not path:
        try:
            descriptor, path = tempfile.mkstemp()
            os.close(descriptor)
        except OSError as error:
            raise RendezvousError(
                "The file creation for C10d store has failed. See inner exception for details."
            ) from error
    try:
        return FileStore(path)
    except (ValueError, RuntimeError) as error:
        raise RendezvousConnectionError(_UNREACHABLE) from error


def create_backend(params):
    """The backend that the parameters ask for, and its store: of a server (store_type=tcp) or in a file (file)."""
    kind = params.get("store_type", "tcp").strip().lower()
    makers = {"file": _create_file_store, "tcp": _create_tcp_store}
    try:
        if kind not in makers:
            raise ValueError("Invalid store type given. Currently only supports file and tcp.")
        store = makers[kind](params)
        return C10dRendezvousBackend(store, params.run_id), store
    except Exception as error:
        construct_and_record_rdzv_event(
            message=f"{type(error).__name__}: {error}", run_id=params.run_id, node_state=NodeState.FAILED
        )
        raise
