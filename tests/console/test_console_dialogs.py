"""The dialog of a change without a browser: messages out of turn, roles that go, steps that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import duralog
from duralog.console.changes.changer import ChangedPlace, Changer
from duralog.console.changes.topic_forms import create_topic_form
from duralog.console.sources.directory.source import DirectorySource


@pytest.fixture
def source(tmp_path: Path) -> Iterator[DirectorySource]:
    duralog.open(tmp_path / "data").close()
    opened = DirectorySource(str(tmp_path / "data"))
    yield opened
    opened.close()


Steps = Callable[[Any, Callable[..., Coroutine[Any, Any, None]]], Coroutine[Any, Any, None]]


def with_dialog(toolkit: Any, source: DirectorySource, steps: Steps, *, is_allowed: bool = True) -> None:
    from duralog.console.ui.change_dialog import ChangeDialog
    from duralog.console.ui.layout import Console

    changer = Changer(ChangedPlace(directory=source.path), is_allowed=is_allowed, after=source.step)

    async def run() -> None:
        toolkit.core.loop = asyncio.get_running_loop()
        with toolkit.Client(toolkit.ui.page(""), request=None) as client:
            dialog = ChangeDialog(Console(source, changer), create_topic_form())

            async def send(**values: object) -> None:
                await dialog._sent(SimpleNamespace(args={"partitions": "2", "configs": "", **values}))  # type: ignore[arg-type]

            await steps(dialog, send)
        client.delete()

    asyncio.run(run())


async def clicked(dialog: Any) -> None:
    with dialog:
        await dialog._confirmed()


def topics(source: DirectorySource) -> list[str]:
    return [topic.name for topic in source.overview().topics]


def test_nothing_happens_out_of_turn(toolkit: Any, source: DirectorySource) -> None:
    async def steps(dialog: Any, send: Any) -> None:
        await dialog._confirmed()
        assert dialog.props["step"] == "form"
        await send(topic="..")
        assert (dialog.props["step"], dialog.props["wrong"]) == ("form", "topic")
        await dialog._sent(SimpleNamespace(args=["topic"]))
        assert dialog.props["problem"]
        await send(topic="orders")
        assert (dialog.props["step"], dialog.props["problem"]) == ("plan", "")
        await send(topic="another")
        assert "orders" in dialog.props["command"], "the plan is what was shown"
        dialog._back()
        await dialog._confirmed()
        assert topics(source) == [], "what was taken back is not done"
        await send(topic="orders")
        await asyncio.gather(clicked(dialog), clicked(dialog))
        assert (dialog.props["step"], dialog.props["sentence"]) == ("done", "Created orders with 2 partitions.")
        await dialog._confirmed()
        dialog._closed()
        assert dialog.is_deleted

    with_dialog(toolkit, source, steps)
    assert topics(source) == ["orders"]


def test_a_role_that_is_taken_away_meanwhile(
    toolkit: Any, source: DirectorySource, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps(dialog: Any, send: Any) -> None:
        await send(topic="orders")
        assert (dialog.props["step"], dialog.props["whyNot"]) == ("plan", "")
        monkeypatch.setattr("duralog.console.ui.change_dialog.is_allowed", lambda _: False)
        await dialog._confirmed()
        assert (dialog.props["step"], dialog.props["busy"]) == ("plan", False)
        assert "needs the role change" in dialog.props["problem"]

    with_dialog(toolkit, source, steps)
    assert topics(source) == []


def test_without_leave_a_forged_confirmation_is_refused(toolkit: Any, source: DirectorySource) -> None:
    async def steps(dialog: Any, send: Any) -> None:
        await send(topic="orders")
        assert "--allow-changes" in dialog.props["whyNot"]
        await dialog._confirmed()
        assert "--allow-changes" in dialog.props["problem"]

    with_dialog(toolkit, source, steps, is_allowed=False)
    assert topics(source) == []


def test_a_change_that_fails_can_be_tried_again(toolkit: Any, source: DirectorySource) -> None:
    async def steps(dialog: Any, send: Any) -> None:
        await send(topic="orders")
        with duralog.open(source.path):
            await dialog._confirmed()
        assert (dialog.props["step"], dialog.props["busy"]) == ("plan", False)
        assert dialog.props["problem"]
        await dialog._confirmed()
        assert (dialog.props["step"], dialog.props["problem"]) == ("done", "")

    with_dialog(toolkit, source, steps)
    assert topics(source) == ["orders"]
