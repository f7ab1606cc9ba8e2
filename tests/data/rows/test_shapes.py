"""Geometries and geographies, as readers of Arrow see them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from state_store.data.rows.decoder import decode
from state_store.data.rows.encoder import encode, partitions_of
from state_store.data.rows.types import GEOARROW_METADATA, GEOARROW_NAME, schema_of
from state_store.errors import FormatError

POINT = bytes.fromhex("0101000000000000000000f03f0000000000000040")


def column(kind: str) -> pa.Field:
    return schema_of(f'{{"fields": [{{"name": "shape", "type": "{kind}"}}]}}', file="test").field(0)


@pytest.mark.parametrize(
    ("kind", "srid", "name", "metadata"),
    [
        ("geometry(OGC:CRS84)", "4326", "geoarrow.wkb", '{"crs": "OGC:CRS84", "crs_type": "authority_code"}'),
        ("geometry(EPSG:3857)", "3857", "geoarrow.wkb", '{"crs": "EPSG:3857", "crs_type": "authority_code"}'),
        ("geometry(SRID:0)", "0", "geoarrow.wkb", "{}"),
        ("geometry(SRID:ANY)", "-1", "geoarrow.wkb", "{}"),
        ("geography(OGC:CRS84, SPHERICAL)", "4326", None, None),
        ("geography(SRID:ANY, SPHERICAL)", "-1", None, None),
    ],
)
def test_spark_and_geoarrow_know_the_columns(kind, srid, name, metadata):
    """The marks are those of PySpark's types; readers of flat coordinates must not accept a geography."""
    found = column(kind).type
    assert [found.field(number).name for number in range(found.num_fields)] == ["srid", "wkb"]
    marks = {key.decode(): value.decode() for key, value in found.field("wkb").metadata.items()}
    assert (marks.get(GEOARROW_NAME.decode()), marks.get(GEOARROW_METADATA.decode())) == (name, metadata)
    assert (marks[kind.partition("(")[0]], marks["srid"]) == ("true", srid)


def test_duckdb_and_polars_read_shapes():
    import duckdb
    import polars

    globe = column("geography(OGC:CRS84, SPHERICAL)").with_name("globe")
    schema = pa.schema([column("geometry(OGC:CRS84)"), globe])
    rows = [{"shape": {"srid": 4326, "wkb": POINT}, "globe": {"srid": 4326, "wkb": POINT}}]
    state = pa.Table.from_pylist(rows, schema)
    (found,) = duckdb.sql("select typeof(shape.wkb), globe.wkb, shape.srid from state").fetchall()
    assert found == ("GEOMETRY('OGC:CRS84')", POINT, 4326)
    assert polars.DataFrame(state)["globe"].struct.field("wkb").to_list() == [POINT]


def test_a_row_has_the_reference_system_before_the_shape():
    """A shape has Spark's bytes: 4 of the system, little-endian, and WKB; a null has none."""
    field = column("geometry(OGC:CRS84)")
    shapes = pa.array([{"srid": 4326, "wkb": POINT}, None], field.type)
    first, second = encode([shapes], 2).to_pylist()
    assert first[17:] == (4326).to_bytes(4, "little") + POINT + bytes(7)
    assert len(second) == 17
    assert decode([first, second], pa.schema([field]))["shape"].to_pylist() == shapes.to_pylist()
    with pytest.raises(FormatError, match="does not partition by"):
        partitions_of([shapes], [field], 7)
