"""Objects that have a state of their own: models, optimizers, whatever a program trains with."""

from typing import Any, Protocol, TypeVar, runtime_checkable

__all__ = ["Stateful", "StatefulT"]


@runtime_checkable
class Stateful(Protocol):
    """Whatever has state_dict and load_state_dict. Loading asks for the state first, and fills it in place."""

    def state_dict(self) -> dict[str, Any]:
        """The state, to be saved or to be filled."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take a state."""
        ...


StatefulT = TypeVar("StatefulT", bound=Stateful)
