"""Manifests, delta metadata and archives: written is read; damage and newer formats are told by name."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state_store.core.checkpoint.names import SharedName, VersionId
from state_store.core.checkpoint.stored_documents import (
    FULL,
    INCREMENTAL,
    META_KEY,
    Cause,
    ColumnFamily,
    DeltaMetadata,
    FileEntry,
    LeaseTerms,
    Manifest,
    Tail,
    pack,
    pack_tombstone,
    unpack,
    unpack_tombstone,
)
from state_store.errors import DamagedError, FormatError

FILE = "snapshot/00000000000000000007_a.zip"
DATABASE = {"CURRENT": b"MANIFEST-000005\n", "MANIFEST-000005": b"\x00\x01", "OPTIONS-000007": b"x"}

counts = st.integers(0, 2**62)
version_ids = st.builds(VersionId, st.integers(1, 10**18), st.just("a-1"))
families = st.dictionaries(st.text(max_size=8), st.booleans(), max_size=5).map(
    lambda found: {
        name: ColumnFamily(number, internal, number * 7)
        for number, (name, internal) in enumerate(found.items())
    }
)


def entry(number: int) -> FileEntry:
    return FileEntry(f"{number:06d}.sst", SharedName(3, 5, number).path, number, "0a" * 32, 6, 3)


def consistent(manifest: Manifest) -> Manifest:
    """Return a manifest of the newest version that this one names; a full one then names itself."""
    named = [version.number for version in (manifest.previous, manifest.full) if version is not None]
    newest = replace(manifest, version=max([3, manifest.version, *named]))
    return replace(newest, full=newest.version_id) if newest.kind == FULL else newest


manifests = st.builds(
    Manifest,
    version=st.integers(1, 10**18),
    checkpoint_id=st.just("a-1"),
    kind=st.sampled_from([INCREMENTAL, FULL]),
    previous=st.none() | version_ids,
    full=st.none() | version_ids,
    merges_since_full=counts,
    deltas_since_full=counts,
    keys=counts,
    files=st.sets(st.integers(1, 99), max_size=5).map(lambda found: tuple(entry(number) for number in found)),
    column_families=families,
    rocksdb_version=st.text(max_size=8),
    writer=st.text(max_size=8),
    created_ms=counts,
    cause=st.none()
    | st.builds(
        Cause,
        st.text(max_size=20),
        st.none() | counts,
        st.none() | st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3),
    ),
).map(consistent)
MANIFEST = Manifest(
    7,
    "a",
    FULL,
    None,
    VersionId(7, "a"),
    0,
    0,
    5,
    (entry(1), entry(2)),
    {"default": ColumnFamily(0, False, 5)},
)

METADATA = DeltaMetadata(7, "a", "b", 5, 5, 0, {}, "a writer")


@given(manifests)
def test_a_manifest_survives_a_round_trip(manifest: Manifest) -> None:
    assert Manifest.from_json(manifest.to_json(), file=FILE) == manifest


def test_a_manifest_may_have_members_of_a_later_release() -> None:
    members = json.loads(MANIFEST.to_json())
    members["cause"] = {"reason": "3 deltas (maxDeltas)", "mood": "calm"}
    later = json.dumps({**members, "later": {"a": [1]}}).encode()
    assert Manifest.from_json(later, file=FILE) == replace(MANIFEST, cause=Cause("3 deltas (maxDeltas)"))


def test_a_manifest_may_lack_its_cause_as_those_of_older_releases() -> None:
    members = json.loads(MANIFEST.to_json())
    del members["cause"]
    assert Manifest.from_json(json.dumps(members).encode(), file=FILE) == MANIFEST


@given(
    st.builds(
        DeltaMetadata,
        version=st.integers(1, 10**18),
        checkpoint_id=st.none() | st.just("a-1"),
        parent=st.none() | st.just("b-1"),
        keys=counts,
        puts=counts,
        removes=counts,
        column_families=families,
        writer=st.text(max_size=8),
    )
)
def test_metadata_survive_a_round_trip(metadata: DeltaMetadata) -> None:
    assert DeltaMetadata.from_json(metadata.to_json(), file="delta/x") == metadata


def test_the_reserved_key_sorts_last() -> None:
    assert bytes.fromhex("FFFF6D657461") == META_KEY
    assert (0xFFFE).to_bytes(2, "big") + b"\xff" * 100 < META_KEY


def changed(**fields: object) -> bytes:
    document = json.loads(MANIFEST.to_json())
    for name, value in fields.items():
        if value is ...:
            del document[name]
        else:
            document[name] = value
    return json.dumps(document).encode()


def changed_file(**fields: object) -> bytes:
    files = json.loads(MANIFEST.to_json())["files"]
    files[0] |= fields
    return changed(files=files)


class TestDamage:
    def test_a_newer_format_says_what_to_do(self) -> None:
        with pytest.raises(FormatError, match=rf"{FILE}.*format 2.*knows format 1.*newer"):
            Manifest.from_json(changed(format=2), file=FILE)
        with pytest.raises(FormatError, match=r"delta/x.*format 9"):
            DeltaMetadata.from_json(b'{"format": 9}', file="delta/x")
        with pytest.raises(FormatError, match="format 0") as caught:
            Manifest.from_json(changed(format=0), file=FILE)
        assert caught.value.file == FILE

    def test_the_whole_file_may_be_its_tail(self) -> None:
        data = changed_file(tail={"bytes": 1, "sha256": "0a" * 32})
        assert Manifest.from_json(data, file=FILE).files[0].tail == Tail(1, "0a" * 32)

    def test_families_of_a_delta_are_checked_by_name(self) -> None:
        families = {"a": {"id": 65535, "internal": False, "keys": 0}}
        metadata = {**json.loads(METADATA.to_json()), "column_families": families}
        with pytest.raises(DamagedError, match="reserved") as caught:
            DeltaMetadata.from_json(json.dumps(metadata).encode(), file="delta/x")
        assert caught.value.file == "delta/x"

    @pytest.mark.parametrize(
        ("data", "fault"),
        [
            (b"", "not JSON"),
            (b"\xff", "not JSON"),
            (b"[]", "not a JSON object"),
            (b"{}", "lacks the field 'format'"),
            (b"[" * 100_000, "not JSON"),
            (changed(format=None), "it lacks the field 'format'"),
            (changed(format=-1), "-1 as 'format'"),
            (changed(format=True), "True as 'format'"),
            (changed(format="1"), "'1' as 'format'"),
            (changed(version=...), "lacks the field 'version'"),
            (changed(version=0), "'version'"),
            (changed(version=True), "'version'"),
            (changed(id=None), "'version'"),
            (changed(id="a_b"), "'version'"),
            (changed(version="7"), "'version'"),
            (changed(keys=-1), "'keys'"),
            (changed(kind="other"), "'other'"),
            (changed(files={}), "'files'"),
            (changed(files=[1]), "has int as 'files'"),
            (changed(previous=5), "'previous'"),
            (changed_file(path="../../etc/passwd"), "etc/passwd"),
            (changed_file(path="shared/../delta/x.sst"), "not an SST"),
            (changed_file(path="shared/00000000000000000003-00000005-1.sst\0"), "not an SST"),
            (changed_file(path=f"shared/00000000000000000003-00000005-{'1' * 5000}.sst"), "not an SST"),
            (changed_file(name="../x.sst"), "name of an SST"),
            (changed_file(name=f"{'1' * 250}.sst"), "name of an SST"),
            (changed(version=10**30), "'version'"),
            (changed(previous={"version": 1, "id": "../a"}), "a version in 'previous'"),
            (changed(full={"version": 1, "id": "a" * 101}), "a version in 'full'"),
            (changed_file(name="000002.sst"), "lists a name twice"),
            (changed_file(path=entry(2).path), "lists a path twice"),
            (changed_file(sha256="0A" * 32), "sha256"),
            (changed_file(origin=0), "'origin'"),
            (changed_file(origin=8), "newer than its own version"),
            (changed_file(path=SharedName(8, 5, 1).path), "newer than its own version"),
            (changed_file(level=7), "in level 7"),
            (changed_file(bytes=0), "with 0 bytes"),
            (changed(previous={"version": 8, "id": "a"}), "as 'previous', which is newer than its own"),
            (changed(full={"version": 8, "id": "a"}), "as 'full', which is newer than its own"),
            (changed_file(tail={"bytes": 2, "sha256": "0a" * 32}), "as the tail of"),
            (changed_file(tail={"bytes": 1, "sha256": "0A" * 32}), "as the tail of"),
            (changed(full={"version": 6, "id": "a"}), "is full, and names version 6"),
            (changed(column_families={"a": {"id": 65535, "internal": False, "keys": 0}}), "reserved"),
            (
                changed(
                    column_families={name: {"id": 1, "internal": False, "keys": 0} for name in ("a", "b")}
                ),
                "in use",
            ),
        ],
    )
    def test_the_fault_of_a_manifest_is_named(self, data: bytes, fault: str) -> None:
        with pytest.raises(DamagedError, match=fault) as caught:
            Manifest.from_json(data, file=FILE)
        assert caught.value.file == FILE
        assert FILE in caught.value.message

    def test_a_field_of_the_future_is_no_damage(self) -> None:
        assert Manifest.from_json(changed(colour="blue"), file=FILE) == MANIFEST


class TestArchive:
    def test_an_archive_is_read_as_it_was_written(self) -> None:
        archive = unpack(pack(MANIFEST, DATABASE), file=FILE)
        assert archive.manifest == MANIFEST
        assert archive.database == DATABASE

    def test_equal_snapshots_have_equal_bytes(self) -> None:
        assert pack(MANIFEST, DATABASE) == pack(MANIFEST, dict(reversed(DATABASE.items())))

    def test_every_truncation_is_noticed(self) -> None:
        data = pack(MANIFEST, DATABASE)
        for length in range(len(data)):
            with pytest.raises(DamagedError, match=FILE):
                unpack(data[:length], file=FILE)

    @pytest.mark.tier("more")
    def test_no_flipped_bit_changes_what_is_read(self) -> None:
        data = pack(MANIFEST, DATABASE)
        noticed = 0
        for position in range(len(data) * 8):
            flipped = bytearray(data)
            flipped[position // 8] ^= 1 << position % 8
            try:
                archive = unpack(bytes(flipped), file=FILE)
            except DamagedError:
                noticed += 1
            else:
                assert archive.manifest == MANIFEST
                assert archive.database == DATABASE
        assert noticed > len(data) * 4

    @pytest.mark.parametrize("missing", ["CURRENT", "manifest.json", "MANIFEST-000005", "OPTIONS-"])
    def test_a_missing_member_is_named(self, missing: str) -> None:
        with pytest.raises(DamagedError, match=f"lacks (RocksDB's )?'{missing}") as caught:
            unpack(_zip(without=missing), file=FILE)
        assert caught.value.file == FILE
        assert FILE in caught.value.message

    def test_bytes_that_are_no_archive_are_damaged(self) -> None:
        with pytest.raises(DamagedError, match="not a whole zip archive") as caught:
            unpack(b"PK", file=FILE)
        assert caught.value.file == FILE

    def test_a_damaged_manifest_names_the_archive(self) -> None:
        members = {"manifest.json": b"{}"}
        with pytest.raises(DamagedError, match=f"{FILE}.*lacks the field 'format'"):
            unpack(_zip(replaced=members), file=FILE)

    @pytest.mark.parametrize("name", ["../CURRENT", "/etc/CURRENT", "000001.sst", "OPTIONS", "sub/CURRENT"])
    def test_a_member_that_does_not_belong_is_refused(self, name: str) -> None:
        with pytest.raises(DamagedError, match=f"{FILE}.*does not belong"):
            unpack(_zip(extra=name), file=FILE)
        with pytest.raises(ValueError, match="not the files of a database"):
            pack(MANIFEST, {**DATABASE, name: b""})

    def test_a_member_that_would_fill_the_memory_is_refused(self) -> None:
        bomb = _zip(extra="OPTIONS-000009", content=bytes(100 << 20), method=zipfile.ZIP_DEFLATED)
        assert len(bomb) < 200_000
        with pytest.raises(
            DamagedError, match=f"{FILE}.*'OPTIONS-000009' is there twice, or larger than any"
        ):
            unpack(bomb, file=FILE)

    def test_more_members_than_were_ever_written(self) -> None:
        buffer = io.BytesIO(_zip())
        with zipfile.ZipFile(buffer, "a") as archive:
            for number in range(10, 30):
                archive.writestr(f"MANIFEST-{number:06}", b"")
        with pytest.raises(DamagedError, match=f"{FILE}.*it has 24 members"):
            unpack(buffer.getvalue(), file=FILE)


def _zip(
    without: str | None = None,
    extra: str | None = None,
    content: bytes = b"",
    method: int = zipfile.ZIP_STORED,
    replaced: dict[str, bytes] | None = None,
) -> bytes:
    buffer = io.BytesIO()
    members = (
        {"manifest.json": MANIFEST.to_json(), **DATABASE}
        | ({extra: content} if extra else {})
        | (replaced or {})
    )
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in members.items():
            if without is None or not name.startswith(without):
                archive.writestr(name, data)
    return buffer.getvalue()


@given(st.sets(st.text(max_size=20)), st.integers(0, 2**53), st.integers(0, 2**53))
def test_claims_are_read_as_they_were_written(paths: set[str], expiry_ms: int, written_ms: int) -> None:
    assert unpack_tombstone(pack_tombstone(paths), file="tombstone/a.json") == paths
    lease = LeaseTerms(frozenset(paths), expiry_ms, written_ms)
    assert LeaseTerms.unpack(lease.pack(), file="lease/a.json") == lease


@pytest.mark.parametrize("text", [b'{"format":1,"files":[]}', b'{"format":1,"files":[],"expiry_ms":1}'])
def test_a_claim_without_its_checksum_is_damaged(text: bytes) -> None:
    for unpack_file_list in (LeaseTerms.unpack, unpack_tombstone):
        with pytest.raises(
            DamagedError, match=r"lease/a\.json' is damaged: it does not end with its CRC-32$"
        ):
            unpack_file_list(text, file="lease/a.json")


def test_a_claim_with_another_checksum_says_which() -> None:
    text = sealed(b'{"format":1,"files":[]}').replace(b'"crc":"', b'"crc":"0')[:-3] + b'"}'
    for unpack_file_list in (LeaseTerms.unpack, unpack_tombstone):
        with pytest.raises(
            DamagedError, match=r"lease/a\.json' is damaged: it has another CRC-32 than 0"
        ) as caught:
            unpack_file_list(text, file="lease/a.json")
        assert caught.value.file == "lease/a.json"


@pytest.mark.parametrize(
    "pack_one",
    [lambda: LeaseTerms(frozenset({"shared/a.sst"}), 5, 6).pack(), lambda: pack_tombstone(["shared/a.sst"])],
)
def test_no_flipped_bit_changes_what_a_claim_says(pack_one: Callable[[], bytes]) -> None:
    packed = pack_one()
    for position in range(len(packed) * 8):
        data = bytearray(packed)
        data[position // 8] ^= 1 << position % 8
        with pytest.raises(DamagedError):
            unpack_tombstone(bytes(data), file="lease/a.json")


def sealed(text: bytes) -> bytes:
    return b'%s,"crc":"%08x"}' % (text[:-1], zlib.crc32(text))


@pytest.mark.parametrize("data", [b"", sealed(b'{"format":1}'), sealed(b'{"format":1,"files":[1]}')])
def test_a_damaged_lease_or_tombstone_is_named(data: bytes) -> None:
    for unpack_file_list in (LeaseTerms.unpack, unpack_tombstone):
        with pytest.raises(DamagedError, match=r"lease/a\.json"):
            unpack_file_list(data, file="lease/a.json")


@pytest.mark.parametrize(
    "terms",
    [
        b'"expiry_ms":-1,"written_ms":1',
        b'"expiry_ms":"1h","written_ms":1',
        b'"expiry_ms":1,"written_ms":true',
        b'"expiry_ms":1',
        b'"written_ms":1',
    ],
)
def test_a_lease_with_damaged_terms_is_refused(terms: bytes) -> None:
    with pytest.raises(DamagedError, match="_ms"):
        LeaseTerms.unpack(sealed(b'{"format":1,"files":[],' + terms + b"}"), file="lease/a.json")
