"""The viewer of a page, and the viewer's rights.

The log-in (`duralog.console.login`) puts a `Viewer` into the scope of each request. A console without users has none:
everyone who reaches it may do everything that `--allow-changes` allows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nicegui import Client, ui

from duralog.broker.security.web_users import Role, WebUser

SCOPE_KEY = "duralog.viewer"


@dataclass(frozen=True, slots=True)
class Viewer:
    user: WebUser
    has_session: bool
    """Whether there is a session to log out of."""
    is_valid: Callable[[], bool]
    """Whether the session is open and the user's line in the users file is unchanged."""


def viewer_of(scope: Mapping[str, Any]) -> Viewer | None:
    """None if the console has no users."""
    return scope.get(SCOPE_KEY)


def viewer_of_page(client: Client) -> Viewer | None:
    return None if client._request is None else viewer_of(client.request.scope)


def viewer_here() -> Viewer | None:
    """The viewer of the page that is being built, or whose event is being handled."""
    return viewer_of_page(ui.context.client)


def is_allowed(role: Role) -> bool:
    """Whether the viewer has this role, or one above it, now."""
    viewer = viewer_here()
    return viewer is None or (viewer.user.role >= role and viewer.is_valid())
