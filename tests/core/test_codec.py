"""Values that go to JSON and back by their fields."""

from __future__ import annotations

import ast
import importlib
import json
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

import state_store
from state_store.core import codec
from state_store.core.checkpoint.names import VersionId


@codec.json_names(size_bytes="bytes")
@dataclass(frozen=True)
class Part:
    name: str
    size_bytes: codec.Positive


@codec.json_names(version=codec.INLINE)
@dataclass(frozen=True)
class Thing:
    version: VersionId
    parts: tuple[Part, ...]
    directory: Path
    kind: Literal["small", "large"]
    previous: VersionId | None
    counts: Mapping[str, int] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    share: float = 0.5
    shift: codec.Signed = 0
    is_new: bool = True
    more: Any = None


THING = Thing(
    version=VersionId(3, "id"),
    parts=(Part("a", 1), Part("b", (1 << 63) - 1)),
    directory=Path("/somewhere/else"),
    kind="large",
    previous=None,
    counts={"x": 0},
    names=frozenset({"b", "a"}),
    share=1,
    shift=-5,
    is_new=False,
    more=[1, {"x": None}],
)
MEMBERS = {
    "version": 3,
    "id": "id",
    "parts": [{"name": "a", "bytes": 1}, {"name": "b", "bytes": (1 << 63) - 1}],
    "directory": "/somewhere/else",
    "kind": "large",
    "previous": None,
    "counts": {"x": 0},
    "names": ["a", "b"],
    "share": 1,
    "shift": -5,
    "is_new": False,
    "more": [1, {"x": None}],
}


def test_a_value_survives_the_way_to_json_and_back():
    assert codec.to_json(THING) == MEMBERS
    assert codec.from_json(Thing, json.loads(json.dumps(MEMBERS))) == THING


def test_an_absent_or_null_member_has_its_default():
    required = ("version", "parts", "directory", "kind")
    members = {name: MEMBERS.get(name) if name in required else None for name in MEMBERS}
    absent = {name: MEMBERS[name] for name in required}
    for given in (members, absent):
        thing = codec.from_json(Thing, given)
        assert (thing.previous, thing.version.checkpoint_id) == (None, None)
        assert (thing.counts, thing.share, thing.is_new) == ({}, 0.5, True)


def test_members_that_nobody_knows_are_ignored():
    assert codec.from_json(Thing, {**MEMBERS, "unheard-of": 1}) == THING


@pytest.mark.parametrize(
    "change, message",
    [
        ({"version": None}, "lacks the field 'version'"),
        ({"version": -1}, "has -1 as 'version', where a number from 0 up belongs"),
        ({"version": 1 << 63}, "where a number from 0 up belongs"),
        ({"version": True}, "has bool as 'version', where int belongs"),
        ({"version": 1.0}, "has float as 'version', where int belongs"),
        ({"id": 5}, "has int as 'id', where str belongs"),
        ({"parts": [{"name": "a", "bytes": 0}]}, "has 0 as 'bytes', where a number from 1 up belongs"),
        ({"parts": [3]}, "has int as 'parts', where dict belongs"),
        ({"parts": {}}, "has dict as 'parts', where list belongs"),
        ({"directory": 3}, "has int as 'directory', where str belongs"),
        ({"kind": "huge"}, "has 'huge' as 'kind', where 'small' or 'large' belongs"),
        ({"previous": []}, "has list as 'previous', where dict belongs"),
        ({"counts": {"x": "y"}}, "has str as 'counts', where int belongs"),
        ({"names": [1]}, "has int as 'names', where str belongs"),
        ({"share": "x"}, "has str as 'share', where float belongs"),
        ({"shift": -(1 << 63) - 1}, "has -9223372036854775809 as 'shift'"),
        ({"is_new": 1}, "has int as 'is_new', where bool belongs"),
    ],
)
def test_a_member_of_another_type_is_named(change, message):
    with pytest.raises(codec.Mismatch) as raised:
        codec.from_json(Thing, {**MEMBERS, **change})
    assert message in str(raised.value)


@pytest.mark.parametrize("members", [None, [], "text", 3])
def test_something_else_than_an_object_is_refused(members):
    with pytest.raises(codec.Mismatch, match="is not a JSON object"):
        codec.from_json(Thing, members)


@codec.json_names(key=codec.OMITTED)
@dataclass(frozen=True)
class Keyed(codec.JsonObject):
    size: int
    key: str = "unknown"


def test_an_omitted_field_is_not_written_and_has_its_default_when_read():
    assert Keyed(5, "k").to_json() == {"size": 5}
    assert codec.from_json(Keyed, {"size": 5, "key": "k", codec.OMITTED: "k"}) == Keyed(5)


def test_an_object_with_a_form_of_its_own_encodes_itself():
    class Own:
        def to_json(self) -> Sequence[int]:
            return [1, 2]

    assert codec.to_json({"own": Own(), "nested": [Own()]}) == {"own": [1, 2], "nested": [[1, 2]]}


def test_bytes_have_no_form_in_json():
    with pytest.raises(TypeError, match="bytes has no form in JSON"):
        codec.to_json([b"x"])


DECODERS = ("from_json", "decode", "_unsealed")


def classes_in_json() -> set[type]:
    """Return the classes that sources decode, those that say something of their JSON, and those in them."""
    package = Path(state_store.__file__).parent
    classes: set[type] = set()
    for path in package.rglob("*.py"):
        names = set(names_in_json(ast.parse(path.read_text())))
        if names:
            module = importlib.import_module(".".join(path.relative_to(package.parent).with_suffix("").parts))
            classes |= {vars(module)[name] for name in names if has_fields(vars(module).get(name))}
    waiting = list(classes)
    while waiting:
        for annotation in typing.get_type_hints(waiting.pop(), include_extras=True).values():
            inner = {kind for kind in kinds_in(annotation) if has_fields(kind)} - classes
            classes |= inner
            waiting += inner
    return classes


def names_in_json(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
            if names & {"JsonObject", "json_names", *DECODERS}:
                yield node.name
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            if node.func.id in DECODERS and isinstance(node.args[0], ast.Name):
                yield node.args[0].id
        elif isinstance(node, ast.Name) and node.id.endswith("Request"):
            yield node.id


def has_fields(kind: Any) -> bool:
    return isinstance(kind, type) and (is_dataclass(kind) or hasattr(kind, "_fields"))


def kinds_in(annotation: Any) -> Iterator[Any]:
    yield annotation
    for inner in typing.get_args(annotation):
        yield from kinds_in(inner)


def test_each_class_that_is_decoded_has_annotations_that_can_be_read():
    """A name that is imported for type checks alone, or an alias of several classes, would fail in a call."""
    classes = classes_in_json()
    assert {"Manifest", "LeaseTerms", "StoreFields", "DirectoryRequest", "VersionId", "Verified"} <= {
        kind.__name__ for kind in classes
    }
    for kind in classes:
        codec._fields(kind)
