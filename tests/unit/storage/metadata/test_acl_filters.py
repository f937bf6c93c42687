"""Filters of access control entries: one pass selects what each of them would select alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duralog.storage.metadata.acls import (
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    TooManyMatches,
    select_acls,
)

NAMES = st.sampled_from(["*", "a", "ab", "abc", "b", "ba"])
PRINCIPALS = st.sampled_from(["User:*", "User:ana", "User:ben"])
HOSTS = st.sampled_from(["*", "10.0.0.1"])
ACLS = st.builds(
    Acl,
    st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    NAMES,
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    PRINCIPALS,
    HOSTS,
    st.sampled_from([Operation.READ, Operation.ALL]),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)
FILTERS = st.builds(
    AclFilter,
    st.sampled_from([ResourceType.ANY, ResourceType.TOPIC, ResourceType.GROUP]),
    st.none() | NAMES | st.just("abcd"),
    st.sampled_from([PatternType.ANY, PatternType.MATCH, PatternType.LITERAL, PatternType.PREFIXED]),
    st.none() | PRINCIPALS,
    st.none() | HOSTS,
    st.sampled_from([Operation.ANY, Operation.READ, Operation.ALL]),
    st.sampled_from([Permission.ANY, Permission.ALLOW]),
)


@given(st.lists(ACLS, unique=True), st.lists(FILTERS))
def test_filters_select_what_each_of_them_matches(acls: list[Acl], filters: list[AclFilter]) -> None:
    assert select_acls(acls, filters) == [[acl for acl in acls if each.matches(acl)] for each in filters]


def test_an_entry_counts_for_each_filter_that_selects_it() -> None:
    acls = [
        Acl(ResourceType.TOPIC, name, PatternType.LITERAL, "User:ana", "*", Operation.READ, Permission.ALLOW)
        for name in "ab"
    ]
    assert select_acls(acls, [AclFilter()] * 3, 6) == [acls] * 3
    with pytest.raises(TooManyMatches):
        select_acls(acls, [AclFilter()] * 3, 5)
