"""The forms for topics and configs."""

from __future__ import annotations

from duralog.config import BROKER_CONFIGS, TOPIC_CONFIGS
from duralog.config.definitions import ConfigDef
from duralog.console.changes.change import Change, WrongInput
from duralog.console.changes.configs import ResetBrokerConfig, SetBrokerConfig
from duralog.console.changes.forms import Field, Form, Values, number_of, settings_of
from duralog.console.changes.topics import AlterTopic, CreateTopic, DeleteTopic
from duralog.format.filenames import topic_name_fault

_SET, _RESET = "set", "reset"


def create_topic_form() -> Form:
    def read(values: Values) -> Change:
        return CreateTopic(
            topic=topic_of(values),
            partitions=number_of(values, "partitions", "Partitions", least=1),
            configs=settings_of(values, "configs", "Configs"),
        )

    return Form(
        title="Create a topic",
        verb="Create topic",
        fields=(
            Field(name="topic", label="Name", placeholder="orders"),
            Field(
                name="partitions",
                label="Partitions",
                placeholder="default",
                about="Empty: the broker's num.partitions.",
            ),
            Field(
                name="configs",
                label="Configs",
                kind="area",
                placeholder="cleanup.policy=compact\nretention.ms=604800000",
                about="One NAME=VALUE per line. Other configs have their defaults.",
            ),
        ),
        read=read,
    )


def add_partitions_form(topic: str, present: int) -> Form:
    def read(values: Values) -> Change:
        count = number_of(values, "partitions", "Partitions", least=present + 1)
        if count is None:
            raise WrongInput("partitions", f"Partitions: a number from {present + 1} on")
        return AlterTopic(topic=topic, configs={}, partitions=count)

    return Form(
        title=f"Add partitions to {topic}",
        verb="Add partitions",
        fields=(
            Field(
                name="partitions",
                label="Partitions in all",
                value=str(present + 1),
                about=f"There are {present:,} now. A topic never gets fewer.",
            ),
        ),
        read=read,
    )


def delete_topic_form(topic: str, topic_id: str | None, about: str) -> Form:
    def read(values: Values) -> Change:
        if values["name"] != topic:
            raise WrongInput("name", f"Type {topic} to delete it.")
        return DeleteTopic(topic=topic, topic_id=topic_id, about=about)

    return Form(
        title=f"Delete {topic}",
        verb="Delete topic",
        about=f"All records of {topic} are lost: {about}.",
        fields=(Field(name="name", label=f"Type the name of the topic: {topic}"),),
        read=read,
        is_harmful=True,
        leads_to="/",
    )


def topic_config_form(topic: str, name: str, value: str, about: str, *, is_set: bool) -> Form:
    def read(values: Values) -> Change:
        text = None if values["what"] == _RESET else _value_of(values)
        return AlterTopic(topic=topic, configs={name: text})

    fields = _config_fields(value, TOPIC_CONFIGS.get(name), is_set=is_set)
    return Form(title=f"{name} of {topic}", about=about, verb="Change config", fields=fields, read=read)


def broker_config_form(name: str, value: str, about: str, *, is_set: bool) -> Form:
    def read(values: Values) -> Change:
        if values["what"] == _RESET:
            return ResetBrokerConfig(name=name)
        return SetBrokerConfig(name=name, value=_value_of(values), for_all=values["for_all"] == "on")

    for_all = Field(
        name="for_all",
        label="For all brokers of the cluster",
        kind="check",
        when=("what", (_SET,)),
        about="Otherwise for this broker, whose own value has priority.",
    )
    fields = (*_config_fields(value, BROKER_CONFIGS.get(name), is_set=is_set), for_all)
    return Form(title=name, about=about, verb="Change config", fields=fields, read=read)


def topic_of(values: Values) -> str:
    topic = values["topic"].strip()
    if (fault := topic_name_fault(topic)) is not None:
        raise WrongInput("topic", f"{fault[:1].upper()}{fault[1:]}.")
    return topic


def _config_fields(value: str, definition: ConfigDef | None, *, is_set: bool) -> tuple[Field, ...]:
    reset = ((_RESET, "Reset to its default"),) if is_set else ()
    return (
        Field(name="what", label="What to do", kind="select", value=_SET, choices=((_SET, "Set a value"), *reset)),
        Field(
            name="value",
            label="Value",
            value=value,
            when=("what", (_SET,)),
            about="" if definition is None else f"{definition.expected[:1].upper()}{definition.expected[1:]}.",
        ),
    )


def _value_of(values: Values) -> str:
    if "\n" in values["value"]:
        raise WrongInput("value", "Value: one line only")
    return values["value"].strip()
