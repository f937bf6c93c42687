"""The catalogue: what records of a registry's topic add up to, and what references lead to."""

from __future__ import annotations

import json
import pickle
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duralog.errors import SchemaError
from duralog.schemas import (
    RegisteredSchema,
    SchemaCatalogue,
    SchemaReference,
    SchemaType,
    SubjectVersion,
    find_schema,
    read_schemas_topic,
)
from duralog.schemas import catalogue as catalogue_module
from tests.support.schemas.presence import present
from tests.support.schemas.registry_records import (
    clear_subject,
    delete_subject,
    karapace_record,
    record,
    schema_record,
    tombstone,
)

LONG, STRING = '"long"', '"string"'


def numbers(catalogue: SchemaCatalogue, subject: str, *, deleted: bool = False) -> list[int]:
    return [each.version for each in catalogue.versions(subject, deleted=deleted)]


class TestTopic:
    def test_confluents_records(self):
        catalogue = read_schemas_topic(
            [
                record({"keytype": "NOOP", "magic": 0}, None),
                record({"keytype": "CONFIG", "subject": None, "magic": 0}, {"compatibilityLevel": "FULL"}),
                record({"keytype": "MODE", "subject": "a-value", "magic": 0}, {"mode": "READWRITE"}),
                record({"keytype": "CONTEXT", "tenant": "default", "context": ".c", "magic": 0}, {"context": ".c"}),
                schema_record("a-value", 1, 1, LONG),
                schema_record("a-value", 2, 2, STRING, guid="8a3a5ad7-6f9e-4a4c-9d1c-1b1b1b1b1b1b"),
                schema_record("p-value", 1, 3, 'syntax = "proto3";', schemaType="PROTOBUF"),
                schema_record("j-value", 1, 4, {}, schemaType="JSON", metadata={"properties": {}}, ruleSet=None),
            ]
        )
        assert catalogue.problems == ()
        assert catalogue.subjects() == ["a-value", "j-value", "p-value"]
        assert numbers(catalogue, "a-value") == [1, 2]
        assert catalogue.ids() == [1, 2, 3, 4]
        assert catalogue.get("a-value").text == STRING
        assert catalogue.get("a-value", 1).id == 1
        assert [present(catalogue.by_id(each)).type for each in (2, 3, 4)] == ["AVRO", "PROTOBUF", "JSON"]
        assert present(catalogue.by_guid(UUID("8a3a5ad7-6f9e-4a4c-9d1c-1b1b1b1b1b1b"))).id == 2
        assert catalogue.by_id(5) is None

    def test_karapaces_records_mean_the_same(self):
        rows = [("a-value", 1, 1, LONG), ("a-value", 2, 2, STRING)]
        ours = read_schemas_topic(karapace_record(*row) for row in rows)
        assert ours == read_schemas_topic(schema_record(*row) for row in rows)
        soft = read_schemas_topic([karapace_record("a-value", 1, 1, LONG, deleted=True)])
        assert numbers(soft, "a-value") == []
        assert numbers(soft, "a-value", deleted=True) == [1]

    def test_a_soft_delete_hides_versions_up_to_its_own(self):
        records = [schema_record("a", n, n, f'"fixed{n}"') for n in (1, 2, 3)]
        catalogue = read_schemas_topic([*records, delete_subject("a", 2)])
        assert numbers(catalogue, "a") == [3]
        assert numbers(catalogue, "a", deleted=True) == [1, 2, 3]
        assert catalogue.by_id(1) is not None
        gone = read_schemas_topic([*records, delete_subject("a", 3)])
        assert gone.subjects() == []
        assert gone.subjects(deleted=True) == ["a"]
        with pytest.raises(SchemaError, match=r"all versions of subject 'a' are deleted; name one of \[1, 2, 3\]"):
            gone.get("a")

    def test_a_hard_delete_removes_a_version_but_ids_of_old_records_still_decode(self):
        catalogue = read_schemas_topic(
            [schema_record("a", 1, 1, LONG), schema_record("a", 1, 1, LONG, deleted=True), tombstone("a", 1)]
        )
        assert catalogue.subjects(deleted=True) == []
        assert present(catalogue.by_id(1)).text == LONG
        compacted = read_schemas_topic([tombstone("a", 1)])
        assert compacted.by_id(1) is None

    def test_clearing_a_subject_removes_what_was_deleted(self):
        catalogue = read_schemas_topic(
            [
                schema_record("a", 1, 1, LONG),
                schema_record("a", 2, 2, STRING),
                delete_subject("a", 1),
                clear_subject("a"),
            ]
        )
        assert numbers(catalogue, "a", deleted=True) == [2]

    def test_a_version_registered_again_after_its_delete_lives(self):
        catalogue = read_schemas_topic(
            [schema_record("a", 1, 1, LONG), delete_subject("a", 1), schema_record("a", 1, 1, LONG)]
        )
        assert numbers(catalogue, "a") == [1]

    def test_an_id_in_use_keeps_its_schema(self):
        catalogue = read_schemas_topic([schema_record("a", 1, 1, LONG), schema_record("b", 1, 1, STRING)])
        assert present(catalogue.by_id(1)).text == LONG
        assert catalogue.subjects() == ["a"]
        assert "schema id 1 exists already with another text: subject 'b' version 1" in catalogue.problems[0]
        freed = read_schemas_topic(
            [schema_record("a", 1, 1, LONG), tombstone("a", 1), schema_record("b", 1, 1, STRING)]
        )
        assert present(freed.by_id(1)).text == STRING

    def test_contexts_have_ids_of_their_own(self):
        catalogue = read_schemas_topic(
            [
                schema_record("a", 1, 1, LONG),
                schema_record(":.prod:a", 1, 1, STRING),
                schema_record(":.:b", 1, 2, LONG),
                delete_subject(":.prod:a", 1),
            ]
        )
        assert catalogue.contexts() == [".", ".prod"]
        assert present(catalogue.by_id(1)).text == LONG
        assert present(catalogue.by_id(1, ".prod")).text == STRING
        assert catalogue.subjects() == ["a", "b"]
        assert catalogue.subjects(deleted=True) == [":.prod:a", "a", "b"]
        cleared = read_schemas_topic([schema_record(":.prod:a", 1, 1, LONG, deleted=True), clear_subject(":.prod:")])
        assert cleared.subjects(deleted=True) == []

    @pytest.mark.parametrize(
        ("key", "value", "problem"),
        [
            (None, b"{}", "it has no key"),
            (b"\xff", b"{}", "its key is not JSON"),
            (b"[]", b"{}", "its key is not a JSON object"),
            (b"{}", b"{}", "its keytype is unknown: 'None'"),
            (b'{"keytype":"NEWER"}', b"{}", "its keytype is unknown: 'NEWER'"),
            (b'{"keytype":"SCHEMA","version":1}', b"{}", "no text in `subject`"),
            (b'{"keytype":"SCHEMA","subject":"a","version":true}', b"{}", "`version` is not a whole number"),
            (b'{"keytype":"SCHEMA","subject":"a","version":0}', b"{}", "`version` is not a whole number from 1"),
            (b'{"keytype":"SCHEMA","subject":"a","version":1}', b"{}", "no text in `schema`"),
            (b'{"keytype":"SCHEMA","subject":"a","version":1}', b'{"schema":"x"}', "`id` is not"),
            (b'{"keytype":"SCHEMA","subject":"a","version":1}', b'{"schema":"x","id":99999999999}', "`id` is not"),
            (b'{"keytype":"SCHEMA","subject":"a","version":1}', b'{"schema":"x","id":1,"schemaType":"XML"}', "'XML'"),
            (b'{"keytype":"SCHEMA","subject":"a","version":1}', b'{"schema":"x","id":1,"guid":"1"}', "a GUID"),
            (
                b'{"keytype":"SCHEMA","subject":"a","version":1}',
                b'{"schema":"x","id":1,"references":[1]}',
                "references",
            ),
            (b'{"keytype":"SCHEMA","subject":"a","version":1}', b"[" * 100_000, "its value is not JSON"),
        ],
    )
    def test_records_that_cannot_be_read_are_reported_and_skipped(self, key, value, problem):
        catalogue = read_schemas_topic([schema_record("a", 1, 1, LONG), (key, value), schema_record("b", 1, 2, STRING)])
        assert catalogue.ids() == [1, 2]
        assert len(catalogue.problems) == 1
        assert "record 1 of the schemas topic" in catalogue.problems[0]
        assert problem in catalogue.problems[0]

    def test_reports_are_bounded(self):
        catalogue = read_schemas_topic((None, None) for _ in range(5_000))
        assert len(catalogue.problems) == 101
        assert catalogue.problems[-1] == "4,900 more"


leaves = (
    st.none() | st.booleans() | st.integers() | st.sampled_from(["SCHEMA", "DELETE_SUBJECT", "a", ":.c:", "", "AVRO"])
)
names = st.sampled_from(
    ["keytype", "subject", "version", "id", "schema", "references", "guid", "deleted", "schemaType"]
)
anything = st.dictionaries(names, leaves | st.lists(leaves | st.dictionaries(names, leaves, max_size=2), max_size=2))
keys = st.builds(
    lambda keytype, subject, version: {"keytype": keytype, "subject": subject, "version": version},
    st.sampled_from(["SCHEMA", "DELETE_SUBJECT", "CLEAR_SUBJECT"]),
    st.sampled_from(["a", "b", ":.c:a"]),
    st.integers(1, 3),
)
values = st.builds(
    lambda subject, version, id_, text, deleted: schema_record(subject, version, id_, text, deleted=deleted)[1],
    st.sampled_from(["a", "b", ":.c:a", ":.c:"]),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from([LONG, STRING]),
    st.booleans(),
)
some_bytes = st.none() | st.binary(max_size=5)


@given(
    st.lists(
        st.tuples(
            some_bytes | (anything | keys).map(lambda value: json.dumps(value).encode()),
            some_bytes | values | anything.map(lambda value: json.dumps(value).encode()),
        ),
        max_size=8,
    )
)
def test_any_records_give_a_catalogue(records):
    catalogue = read_schemas_topic(records)
    for subject in catalogue.subjects(deleted=True):
        for each in catalogue.versions(subject, deleted=True):
            assert present(catalogue.by_id(present(each.schema.id), each.schema.context)).text == each.schema.text


def avro(text: str, id_: int, *references: SchemaReference, context: str = ".") -> RegisteredSchema:
    return RegisteredSchema(type=SchemaType.AVRO, text=text, id=id_, references=references, context=context)


class TestReferences:
    def test_dependencies_come_first(self):
        c = avro("c", 1)
        b = avro("b", 2, SchemaReference("C", "c", 1))
        a = avro("a", 3, SchemaReference("B", "b", 1), SchemaReference("C", "c", 1))
        catalogue = SchemaCatalogue([SubjectVersion("b", 1, b), SubjectVersion("c", 1, c, deleted=True)])
        assert list(catalogue.resolve(a).items()) == [("C", c), ("B", b)]

    def test_the_latest_version_and_other_contexts(self):
        inner = avro("x", 1, context=".p")
        catalogue = SchemaCatalogue([SubjectVersion(":.p:x", 4, inner), SubjectVersion("x", 4, avro("other", 9))])
        own = avro("a", 2, SchemaReference("X", "x", -1), context=".p")
        assert catalogue.resolve(own) == {"X": inner}
        other = avro("a", 2, SchemaReference("X", ":.p:x", 4))
        assert catalogue.resolve(other) == {"X": inner}

    def test_one_that_is_gone_is_named_with_its_referrer(self):
        catalogue = SchemaCatalogue([SubjectVersion("b", 1, avro("b", 2, SchemaReference("C", "c-value", 7)))])
        with pytest.raises(
            SchemaError, match=r"subject 'c-value' version 7 is gone: subject 'b' version 1 references it as 'C'"
        ):
            catalogue.resolve(avro("a", 3, SchemaReference("B", "b", 1)))

    def test_cycles_depth_count_and_size_are_bounded(self, monkeypatch):
        loop = avro("a", 1, SchemaReference("A", "a", 1))
        with pytest.raises(SchemaError, match="form a cycle: A -> A"):
            SchemaCatalogue([SubjectVersion("a", 1, loop)]).resolve(loop)
        chain = [
            SubjectVersion(f"s{n}", 1, avro(str(n), n, SchemaReference(f"N{n + 1}", f"s{n + 1}", 1)))
            for n in range(100)
        ]
        with pytest.raises(SchemaError, match="nested deeper than 32: N1 -> N2 -> N3 -> "):
            SchemaCatalogue(chain).resolve(chain[0].schema)
        # A small file of doublings: 2^30 if each was followed.
        bomb = [
            SubjectVersion(f"s{n}", 1, avro(str(n), n, *[SchemaReference(f"N{n + 1}", f"s{n + 1}", 1)] * 2))
            for n in range(30)
        ]
        bomb.append(SubjectVersion("s30", 1, avro("end", 30)))
        assert len(SchemaCatalogue(bomb).resolve(bomb[0].schema)) == 30
        wide = avro("w", 1, *[SchemaReference("E", "s30", 1)] * 1001)
        with pytest.raises(SchemaError, match="more than 1,000 references"):
            SchemaCatalogue(bomb).resolve(wide)
        monkeypatch.setattr(catalogue_module, "MAX_REFERENCED_BYTES", 3)
        with pytest.raises(SchemaError, match="MiB with its references"):
            SchemaCatalogue(bomb).resolve(avro("abc", 1, SchemaReference("E", "s30", 1)))

    def test_one_name_for_two_schemas_is_refused(self):
        catalogue = SchemaCatalogue(
            [
                SubjectVersion("x", 1, avro("1", 1)),
                SubjectVersion("x", 2, avro("2", 2)),
                SubjectVersion("b", 1, avro("b", 3, SchemaReference("X", "x", 2))),
            ]
        )
        with pytest.raises(SchemaError, match="reference 'X' is another schema"):
            catalogue.resolve(avro("a", 4, SchemaReference("X", "x", 1), SchemaReference("B", "b", 1)))


class TestUse:
    catalogue = read_schemas_topic([schema_record("orders-value", n, n, f'"{n}"') for n in (1, 2)])

    def test_names_that_people_type(self):
        assert find_schema(self.catalogue, "orders-value").id == 2
        assert find_schema(self.catalogue, "orders-value:1").id == 1
        assert find_schema(self.catalogue, "orders-value:latest").id == 2
        assert find_schema(self.catalogue, "id:1").id == 1
        odd = read_schemas_topic([schema_record("a:3", 1, 7, LONG), schema_record(":.c:x", 1, 8, LONG)])
        assert find_schema(odd, "a:3").id == 7
        assert find_schema(odd, ":.c:x").id == 8
        assert find_schema(odd, ":.c:x:1").id == 8

    @pytest.mark.parametrize(
        ("choice", "problem"),
        [
            ("orders", "no subject 'orders'; did you mean 'orders-value'"),
            ("nothing", "no subject 'nothing'$"),
            ("orders-value:3", r"no version 3, only \[1, 2\]"),
            ("id:9", "no id 9"),
            ("guid:9", "'9' is not a GUID"),
            ("guid:8a3a5ad7-6f9e-4a4c-9d1c-1b1b1b1b1b1b", "no GUID 8a3a"),
        ],
    )
    def test_what_does_not_exist(self, choice, problem):
        with pytest.raises(SchemaError, match=problem):
            find_schema(self.catalogue, choice)

    def test_tasks_get_an_equal_one(self):
        assert pickle.loads(pickle.dumps(self.catalogue)) == self.catalogue

    def test_only_one_type_and_what_it_references(self):
        catalogue = SchemaCatalogue(
            [
                SubjectVersion("a", 1, avro("a", 1, SchemaReference("P", "p", 1))),
                SubjectVersion("p", 1, avro("p", 2, context=".")),
                SubjectVersion("j", 1, RegisteredSchema(type=SchemaType.JSON, text="{}", id=3)),
            ]
        )
        narrowed = catalogue.only(SchemaType.AVRO)
        assert narrowed.ids() == [1, 2]
        assert narrowed.resolve(present(narrowed.by_id(1)))["P"].id == 2

    def test_later_catalogues_win(self):
        newer = read_schemas_topic([schema_record("orders-value", 2, 5, LONG)])
        merged = self.catalogue.merged(newer)
        assert merged.get("orders-value").id == 5
        assert merged.ids() == [1, 2, 5]

    def test_too_many_are_refused(self, monkeypatch):
        monkeypatch.setattr(catalogue_module, "MAX_SCHEMAS", 1)
        with pytest.raises(SchemaError, match="name the subjects that you need"):
            read_schemas_topic([schema_record("a", 1, 1, LONG), schema_record("a", 2, 2, STRING)])

    def test_a_text_has_bounds(self):
        with pytest.raises(SchemaError, match="the given schema has 8,388,609 characters"):
            RegisteredSchema(type=SchemaType.AVRO, text="x" * ((8 << 20) + 1))
