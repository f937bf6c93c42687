"""How a coordinator says no: with the error code that the client is to see."""

from __future__ import annotations


class GroupRefusal(Exception):
    """The request, or the part of it that was looked at, is refused, and nothing has changed."""

    def __init__(self, error_code: int, message: str | None = None) -> None:
        super().__init__(message or f"error code {error_code}")
        self.error_code = error_code
        self.message = message
        """For APIs whose answers have a text; None where Kafka sends none."""
