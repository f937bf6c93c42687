"""Changes of topics: create, alter, add partitions, delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from duralog.broker.security.web_users import Role
from duralog.config.plurals import plural
from duralog.console.changes.change import Preview, WithoutInput
from duralog.errors import DuralogError
from duralog.operations.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopic(WithoutInput):
    topic: str
    partitions: int | None
    """None for the broker's `num.partitions`."""
    configs: Mapping[str, str]
    role: Role = Role.CHANGE

    def arguments(self, where: Sequence[str]) -> list[str]:
        count = [] if self.partitions is None else ["--partitions", str(self.partitions)]
        return ["topic", "create", *where, "--topic", self.topic, *count, *_settings(self.configs)]

    def preview(self, target: Target) -> Preview:
        target.check_new_topic(self.topic, self.partitions, self.configs)
        count = "the default number of partitions" if self.partitions is None else plural(self.partitions, "partition")
        return Preview(
            sentence=f"Topic {self.topic} is created with {count}.",
            columns=("Config", "Value") if self.configs else (),
            rows=tuple(self.configs.items()),
        )

    def carry_out(self, target: Target) -> str:
        count = target.create_topic(self.topic, self.partitions, self.configs)
        return f"Created {self.topic} with {plural(count, 'partition')}."


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTopic(WithoutInput):
    topic: str
    configs: Mapping[str, str | None]
    """None removes one, so that its default applies."""
    partitions: int | None = None
    """How many there are in the end."""
    role: Role = Role.CHANGE

    def arguments(self, where: Sequence[str]) -> list[str]:
        removed = [word for name, text in self.configs.items() if text is None for word in ("--delete-config", name)]
        count = [] if self.partitions is None else ["--partitions", str(self.partitions)]
        kept = {name: text for name, text in self.configs.items() if text is not None}
        return ["topic", "alter", *where, "--topic", self.topic, *_settings(kept), *removed, *count]

    def preview(self, target: Target) -> Preview:
        target.check_alteration(self.topic, self.configs, self.partitions)
        if self.partitions is not None:
            return Preview(
                sentence=f"{self.topic} gets {plural(self.partitions, 'partition')} in all. This cannot be undone.",
                notes=("New records of a key may go to another partition than the existing ones.",),
            )
        before = {entry.name: entry.text for entry in target.topic_configs(self.topic)}
        return config_preview(f"The configs of {self.topic} change at once.", before, self.configs)

    def carry_out(self, target: Target) -> str:
        target.alter_topic(self.topic, self.configs, self.partitions)
        if self.partitions is not None:
            return f"{self.topic} has {plural(self.partitions, 'partition')}."
        return f"Changed {', '.join(self.configs)} of {self.topic}."


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopic(WithoutInput):
    topic: str
    topic_id: str | None
    """The id that the user saw. A topic of the same name that was created since is not deleted."""
    about: str
    """What is deleted: `3 partitions, 1.5 GiB`."""
    role: Role = Role.ADMINISTER

    def arguments(self, where: Sequence[str]) -> list[str]:
        return ["topic", "delete", *where, "--topic", self.topic]

    def preview(self, target: Target) -> Preview:
        self._check(target)
        return Preview(sentence=f"{self.topic} is deleted with all its records, permanently: {self.about}.")

    def carry_out(self, target: Target) -> str:
        self._check(target)
        target.delete_topic(self.topic)
        return f"Deleted {self.topic}."

    def _check(self, target: Target) -> None:
        if target.topic_id(self.topic) != self.topic_id:
            raise DuralogError(f"{self.topic} was deleted and created again meanwhile: open this page again")


def config_preview(sentence: str, before: Mapping[str, str | None], changes: Mapping[str, str | None]) -> Preview:
    """What each config is now, and what it will be."""
    rows = tuple(
        (name, _shown(before.get(name)), "(its default)" if text is None else _shown(text))
        for name, text in changes.items()
    )
    return Preview(sentence=sentence, columns=("Config", "Now", "Then"), rows=rows)


def _shown(text: str | None) -> str:
    return "–" if text is None else text or "(empty)"


def _settings(configs: Mapping[str, str]) -> list[str]:
    return [word for name, value in configs.items() for word in ("--config", f"{name}={value}")]
