"""What handlers say that they use, and what the broker hands them."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import UnionType
from typing import get_origin, get_type_hints

from duralog.broker.authorization.rules import RULES
from duralog.broker.broker import Broker
from duralog.broker.handlers import load_apis
from duralog.broker.wire.request import Request


def test_a_handler_gets_the_parts_that_its_parameters_name(tmp_path: Path) -> None:
    """They are handed in by name: that each is of the type which the handler declares, no type checker sees."""
    with Broker(str(tmp_path)) as broker:
        for api in load_apis().values():
            types = get_type_hints(api.handle)
            *names, last = inspect.signature(api.handle).parameters
            assert (last, types[last]) == ("request", Request), api.name
            for name in names:
                kind = types[name]
                expected = kind if isinstance(kind, UnionType) else get_origin(kind) or kind
                assert isinstance(getattr(broker, name), expected), (api.name, name)


def test_every_api_has_a_rule() -> None:
    """Without one, a broker with an authorizer does not start."""
    assert {api.name for api in load_apis().values()} <= RULES.keys()
