"""State variables come and go when a query is started again: which there are at which version."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import pytest

import state_store
from dataset.golden_states import checkpoint
from state_store.errors import MissingError

KEY = {"fields": [{"name": "key", "type": "string", "nullable": True}]}
ENCODER = '{"keyStateEncoderType": "NoPrefixKeyStateEncoderSpec"}'
VARIABLES: Mapping[int, tuple[str, ...]] = {0: ("kept",), 2: ("kept", "late"), 3: ("kept",)}
"""By the batch since which the query had them."""


def text(value: str) -> bytes:
    """As `DataOutputStream.writeUTF` of Java."""
    return struct.pack(">H", len(value)) + value.encode()


def pieces(value: str) -> bytes:
    return struct.pack(">i", 1) + text(value)


def schemas(names: tuple[str, ...]) -> bytes:
    found = text("v3") + struct.pack(">i", len(names))
    for name in names:
        value = {"fields": [{"name": f"n_{name}", "type": "long", "nullable": True}]}
        found += text(name) + pieces(json.dumps(KEY)) + pieces(json.dumps(value)) + pieces(ENCODER)
        found += struct.pack(">i", 0)
    return found


@pytest.fixture
def directory(tmp_path) -> str:
    """A query of four batches whose operator has column families, as Spark describes them."""
    root = checkpoint("flights", tmp_path)
    (root / "state/0/_metadata/metadata").unlink()
    files: list[str] = []
    for batch, names in VARIABLES.items():
        path = f"state/0/_stateSchema/default/{batch}_id"
        files.append(f"file:{root}/{path}")
        _write(root / path, schemas(names))
        store = {"storeName": "default", "numPartitions": 2, "stateSchemaFilePaths": list(files)}
        operator = {"operatorId": 0, "operatorName": "transformWithStateExec"}
        described = {"operatorInfo": operator, "stateStoreInfo": [store], "operatorPropertiesJson": "{}"}
        _write(root / f"state/0/_metadata/v2/{batch}", f"v2\n{json.dumps(described)}".encode())
    return str(root)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_each_version_has_the_variables_that_the_query_had_then(directory, version):
    with state_store.open(directory, store="kept", version=version) as state:
        assert state.schema.names == ["key", "n_kept", "partition_id"]
    if version == 3:
        with state_store.open(directory, store="late", version=version) as state:
            assert state.schema.names == ["key", "n_late", "partition_id"]
        return
    with pytest.raises(MissingError, match=r"there are: kept; it is there from version 3 to 3$"):
        state_store.open(directory, store="late", version=version)
    with pytest.raises(MissingError, match=r"no store 'other'; there are: kept$"):
        state_store.open(directory, store="other", version=version)


def test_what_came_last_is_there_from_then_on(directory):
    (Path(directory) / "state/0/_metadata/v2/3").unlink()
    with pytest.raises(MissingError, match=r"it is there from version 3 on$"):
        state_store.open(directory, store="late", version=2)


def test_where_spark_has_forgotten_the_batch_the_oldest_description_counts(directory):
    (Path(directory) / "state/0/_metadata/v2/0").unlink()
    with state_store.open(directory, store="late", version=1) as state:
        assert state.schema.names == ["key", "n_late", "partition_id"]
