"""The names of models in the APIs of models: the served model, and each profile of the configuration."""

from __future__ import annotations

from dataclasses import dataclass

from dial_client.client.dial_client import DialClient
from dial_client.runtime.logs import get_logger
from dial_client.runtime.safe_text import to_one_line
from dial_client.serve.http_messages import HttpError
from dial_client.serve.people.owner_limits import check_model, may_use_model
from dial_client.serve.turns.turn_registry import ServedModel

# The end of the name of a model without tools and instructions.
PLAIN = ":plain"
_MAX_REPORTED = 20

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class NamedModel:
    """The model that a request names."""

    name: str
    """The name in the request."""
    profile: str | None = None
    """The name of its profile; None for the client's model."""
    is_plain: bool = False
    """True for the model alone, without the servers' tools and the host's instructions."""


class ModelNames:
    """The models that requests may name.

    Args:
        dial: The client, whose profiles are models too.
        served: The client's model.
        is_locked: True if requests cannot choose another model than the client's.
    """

    def __init__(self, dial: DialClient, served: ServedModel, *, is_locked: bool) -> None:
        self._dial = dial
        self._served = served
        self._is_locked = is_locked
        # The unknown names that the log has a line for.
        self._reported: set[str] = set()

    def list_names(self) -> list[str]:
        """Return all names, the served model first, and each model once more without tools and instructions."""
        profiles = () if self._is_locked else self._dial.model.profiles
        names = [name for name in dict.fromkeys((self._served.name, *profiles)) if name and may_use_model(name)]
        return [f"{name}{suffix}" for suffix in ("", PLAIN) for name in names]

    def find(self, name: object, stand_in: str = "") -> NamedModel:
        """Return the model with a name; the client's model for no name. See `_find`.

        Raises:
            HttpError: There is no model of this name, or the person of the request may not use it.
        """
        found = self._find(name, stand_in)
        check_model(found.profile or self._served.name)
        return found

    def _find(self, name: object, stand_in: str) -> NamedModel:
        """Return the model with a name; the client's model for no name.

        Args:
            name: The name in the request.
            stand_in: The client's model answers for unknown names with this beginning, and says so in the log; empty
                for none.

        Raises:
            HttpError: There is no model of this name.
            NoModel: There is no model at all.
        """
        if name is None:
            return NamedModel(self._served.name)
        if isinstance(name, str):
            # The longest name comes first: a profile may itself end in the suffix.
            for known, is_plain in ((name, False), (name.removesuffix(PLAIN), name.endswith(PLAIN))):
                if known == self._served.name:
                    return NamedModel(name, None, is_plain)
                if not self._is_locked and known in self._dial.model.profiles:
                    return NamedModel(name, known, is_plain)
            if stand_in and name.startswith(stand_in):
                self._report(name)
                return NamedModel(f"{self._served.name}{PLAIN if is_plain else ''}", None, is_plain)
        if not self._served.name:
            self._dial.model.require()
        message = f"there is no model {name!r} here: the model is {self._served.name!r}, GET /v1/models lists all"
        raise HttpError(404, message, "model_not_found", param="model")

    def _report(self, name: str) -> None:
        """Log, once for each of the first names, that the served model answers in place of another one."""
        if name not in self._reported and len(self._reported) < _MAX_REPORTED:
            self._reported.add(name)
            log.warning("model_replaced", requested=to_one_line(name, 100), model=self._served.name)
