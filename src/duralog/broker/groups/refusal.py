"""A refusal of a coordinator, with the error code for the client."""

from __future__ import annotations


class GroupRefusal(Exception):
    """The request, or the part of it that was checked, is refused, and nothing has changed."""

    def __init__(self, error_code: int, message: str | None = None) -> None:
        super().__init__(message or f"error code {error_code}")
        self.error_code = error_code
        self.message = message
        """For APIs whose answers have a text; None where Kafka sends none."""
