"""Changes of broker configs, and all configs of a topic or a broker as the pages list them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from duralog.broker.security.web_users import Role
from duralog.console.changes.change import Preview, WithoutInput
from duralog.console.changes.topics import config_preview
from duralog.operations.broker_configs import reset_configs, set_configs
from duralog.operations.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class SetBrokerConfig(WithoutInput):
    name: str
    value: str
    for_all: bool = False
    """For all brokers of the cluster instead of this one."""
    role: Role = Role.ADMINISTER

    def arguments(self, where: Sequence[str]) -> list[str]:
        for_all = ["--all-brokers"] if self.for_all else []
        return ["config", "set", *where, f"{self.name}={self.value}", *for_all]

    def preview(self, target: Target) -> Preview:
        configs = target.configs()
        entries = configs.entries(configs.own)
        set_configs(configs, {self.name: self.value}, for_all=self.for_all, validate_only=True)
        before = {entry.name: entry.text for entry in entries}
        whose = "all brokers" if self.for_all else "this broker"
        return config_preview(f"{self.name} is stored for {whose}.", before, {self.name: self.value})

    def carry_out(self, target: Target) -> str:
        set_configs(target.configs(), {self.name: self.value}, for_all=self.for_all)
        return f"Set {self.name}."


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetBrokerConfig(WithoutInput):
    name: str
    role: Role = Role.ADMINISTER

    def arguments(self, where: Sequence[str]) -> list[str]:
        return ["config", "reset", *where, self.name]

    def preview(self, target: Target) -> Preview:
        configs = target.configs()
        if not reset_configs(configs, [self.name], validate_only=True):
            return Preview(sentence=f"{self.name} is not stored: there is nothing to reset.", has_effect=False)
        before = {entry.name: entry.text for entry in configs.entries(configs.own)}
        sentence = f"What is stored for {self.name} is removed, for this broker and for all."
        return config_preview(sentence, before, {self.name: None})

    def carry_out(self, target: Target) -> str:
        reset_configs(target.configs(), [self.name])
        return f"Reset {self.name}."
