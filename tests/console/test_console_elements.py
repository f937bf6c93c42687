"""Parts of pages without a browser."""

from __future__ import annotations

import asyncio
from typing import Any


def test_a_slow_partition_is_said_to_be_read(toolkit: Any) -> None:
    from duralog.console.pages.partition_frame import show_when_read

    async def run() -> None:
        toolkit.core.loop = asyncio.get_running_loop()
        with toolkit.Client(toolkit.ui.page(""), request=None) as client:
            shown: list[str] = []
            slow: Any = asyncio.get_running_loop().create_future()
            about = toolkit.ui.label()
            show_when_read(slow, shown.append, about)
            assert (about.text, "loading" in about.classes, shown) == ("Reading the partition …", True, [])
            quick: Any = asyncio.get_running_loop().create_future()
            quick.set_result("facts")
            about = toolkit.ui.label()
            show_when_read(quick, shown.append, about)
            assert (about.text, "loading" in about.classes, shown) == ("", False, ["facts"])
        client.delete()

    asyncio.run(run())
