"""The schemas of the column families of a store, from the files in which Spark describes them.

Most operators have one file for each store, `state/<operator>/0[/<store>]/_metadata/schema`: a version, then
the schemas of key and value as JSON, in pieces as Java writes texts. Operators with column families have
several files, oldest first, which the operator's metadata name. Each describes all families, and how their
keys are encoded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from state_store.core.settings.session import ENCODING_KEY, UNNAMED
from state_store.data.query import Operator, Query
from state_store.data.query.java_texts import JavaTexts
from state_store.data.query.operators import schema_file
from state_store.data.rows.key_layouts import KeyLayout
from state_store.data.rows.types import schema_of
from state_store.errors import DamagedError, FormatError

if TYPE_CHECKING:
    import pyarrow

DEFAULT_FAMILY = "default"


@dataclass(frozen=True)
class Writers:
    """The fields with which Spark wrote rows in Avro, by the number of the schema in each row.

    `newest_keys` and `newest_values` are the numbers with which rows are written now.
    """

    keys: Mapping[int, Sequence[pyarrow.Field]]
    values: Mapping[int, Sequence[pyarrow.Field]]
    newest_keys: int
    newest_values: int


@dataclass(frozen=True)
class FamilySchema:
    """The rows of one column family: the fields of keys and values, and the encoding of keys.

    `avro` is None unless rows are encoded with Avro.
    """

    family: str
    key: pyarrow.Schema
    value: pyarrow.Schema
    layout: KeyLayout
    avro: Writers | None = None


def read_schemas(query: Query, operator: Operator, store: str) -> list[FamilySchema]:
    """Return the column families of a store of an operator, as the newest of Spark's files describes them.

    Raises:
        MissingError: there is no such file.
        DamagedError: a file cannot be read.
        FormatError: a file has an unknown version.
    """
    files = operator.schema_files.get(store)
    path = schema_file(operator, store)
    texts = JavaTexts(query.read(path), path)
    version = texts.text()
    if version not in ("v1", "v2", "v3"):
        raise FormatError(f"'{path}' is of version '{version}', which this release does not know", file=path)
    if version == "v3":
        newest = _families(texts, path)
        if files and is_avro(query):
            written = [_families(_after_version(query, file), file) for file in files[:-1]]
            return [_with_writers(family, [*written, newest]) for family in newest]
        return [family for family, _, _ in newest]
    key, value = (texts.text() if version == "v1" else texts.pieces() for _ in range(2))
    layout = KeyLayout(tuple(range(operator.prefix_columns.get(store, 0))))
    return [FamilySchema(DEFAULT_FAMILY, schema_of(key, file=path), schema_of(value, file=path), layout)]


def is_avro(query: Query) -> bool:
    """Return True if the query's state variables are in Avro. Raises FormatError for unknown encodings."""
    encoding = query.logs.pinned_conf().get(ENCODING_KEY, UNNAMED[ENCODING_KEY])
    if encoding not in ("unsaferow", "avro"):
        raise FormatError(
            f"the state of {query.location} is encoded with '{encoding}' ({ENCODING_KEY}), which is not known"
        )
    return encoding == "avro"


_Numbered = tuple[FamilySchema, int, int]
"""A family, and the numbers of its schemas of keys and of values."""


def _families(texts: JavaTexts, path: str) -> list[_Numbered]:
    return [_family(texts, path) for _ in range(texts.number(">i"))]


def _after_version(query: Query, path: str) -> JavaTexts:
    texts = JavaTexts(query.read(path), path)
    texts.text()
    return texts


def _with_writers(newest: _Numbered, files: Sequence[Sequence[_Numbered]]) -> FamilySchema:
    """Return the family with the schemas of all files."""
    schema, newest_keys, newest_values = newest
    same = [numbered for file in files for numbered in file if numbered[0].family == schema.family]
    keys = {number: list(family.key) for family, number, _ in same}
    values = {number: list(family.value) for family, _, number in same}
    return replace(schema, avro=Writers(keys, values, newest_keys, newest_values))


def _family(texts: JavaTexts, path: str) -> _Numbered:
    """Read one family from a file.

    The texts are a name, the schemas of key and value (each after its number in later releases), the encoder
    of keys, and the schema of the keys of a map, or nothing.
    """
    name = texts.text()
    key_number, text = texts.numbered_pieces()
    key = schema_of(text, file=path)
    value_number, text = texts.numbered_pieces()
    value = schema_of(text, file=path)
    try:
        encoder = json.loads(texts.pieces())
        layout = _layout(encoder)
    except (TypeError, ValueError) as error:
        raise DamagedError(f"'{path}' is damaged: it has no encoder of keys: {error!r}", file=path) from error
    texts.pieces()
    return FamilySchema(name, key, value, layout), key_number, value_number


def _layout(encoder: Mapping[str, Any]) -> KeyLayout:
    if "orderingOrdinals" in encoder:
        return KeyLayout(tuple(encoder["orderingOrdinals"]), is_ordered=True)
    return KeyLayout(tuple(range(encoder.get("numColsPrefixKey", 0))))
