"""`state-store verify`: are all files whole, and can the checkpoints be restored?"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from state_store.checkpoint.manifest import FULL, FileEntry
from state_store.checkpoint.names import VersionId
from state_store.cli import inventory, tables
from state_store.cli.arguments import add_query_arguments, chosen
from state_store.cli.inventory import Inventory
from state_store.cli.query import Query, StoreKey
from state_store.cli.sites import site
from state_store.errors import StateStoreError
from state_store.files.transfer import crc32_of, sha256_of
from state_store.snapshots.context import Site
from state_store.snapshots.restore import restore
from state_store.storage import Storage

HELP = "check all files and restore the newest checkpoint"
DESCRIPTION = """\
Reads every file of the state, compares it with its checksum, checks that full checkpoints share nothing
with older ones, and restores the version that Spark committed last into a temporary directory. Exits with
1 when anything is wrong. Needs local disk for the state of one partition at a time, and writes nothing to
checkpoint storage."""


@dataclass(frozen=True)
class Finding:
    """Something that is wrong; `file` is below the store's directory."""

    key: StoreKey
    file: str
    what: str


@dataclass(frozen=True)
class Verdict:
    """What was looked at in one store and what was found."""

    key: StoreKey
    files: int
    bytes: int
    restored: VersionId | None
    keys: int
    restorable: tuple[VersionId, ...]
    findings: tuple[Finding, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "operator": self.key.operator,
            "partition": self.key.partition,
            "name": self.key.name,
            "files": self.files,
            "bytes": self.bytes,
            "restored": tables.version_json(self.restored),
            "keys": self.keys,
            "restorable": [tables.version_json(of) for of in self.restorable],
            "findings": [{"file": one.file, "what": one.what} for one in self.findings],
        }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_query_arguments(parser)
    parser.add_argument(
        "--all-versions", action="store_true", help="restore every restorable version, not the newest alone"
    )


def run(arguments: argparse.Namespace) -> int:
    query = Query.open(arguments.checkpoint)
    ids = query.committed_ids()
    verdicts = query.for_each(
        query.stores(chosen(arguments)),
        lambda key, storage: verify_store(key, storage, ids.get(key), every=arguments.all_versions),
    )
    findings = [one for verdict in verdicts for one in verdict.findings]
    if arguments.json:
        stores = [verdict.to_json() for verdict in verdicts]
        print(tables.as_json({"checkpoint": query.location, "ok": not findings, "stores": stores}))
    else:
        _print(verdicts, findings)
    return 1 if findings else 0


def verify_store(
    key: StoreKey, storage: Storage, committed_id: str | None, *, every: bool = False
) -> Verdict:
    """Looks at everything in one store; Spark's version with `committed_id` must be restorable."""
    found = inventory.take(key, storage)
    findings = [*_unreadable(found), *_shared_by_full(found)]
    with tempfile.TemporaryDirectory(prefix="state-store-verify-") as directory:
        findings += _checksums(found, storage, Path(directory))
        newest = found.newest(committed_id)
        if committed_id is not None and (newest is None or newest.id != committed_id):
            what = f"the version that Spark committed last, id {committed_id}, cannot be restored"
            findings.append(Finding(key, "delta/", what))
        versions = found.registry.checkpoints()
        wanted = versions if every else [of for of in versions if of == newest]
        with site(storage, Path(directory), found) as place:
            keys, failures = _restore_all(key, place, wanted)
    sizes = found.listing.sst_bytes()
    return Verdict(
        key,
        len(sizes) + len(found.listing.snapshots),
        sum(sizes.values()),
        newest,
        keys,
        tuple(versions),
        (*findings, *failures),
    )


def _unreadable(found: Inventory) -> Iterator[Finding]:
    for path, why in found.unreadable.items():
        yield Finding(found.key, path, why)
    sizes = found.listing.sst_bytes()
    for snapshot, manifest in found.manifests.items():
        for entry in manifest.files:
            if entry.path not in sizes:
                yield Finding(found.key, entry.path, f"is missing, and {snapshot.path} needs it")


def _shared_by_full(found: Inventory) -> Iterator[Finding]:
    """Files of full snapshots that an older snapshot has, too."""
    manifests = sorted(found.manifests.values(), key=lambda one: one.version)
    for full in (one for one in manifests if one.kind == FULL):
        older = {entry.path: one for one in manifests if one.version < full.version for entry in one.files}
        for entry in full.files:
            if entry.path in older:
                what = f"is shared by the full checkpoint {full.of} and the older {older[entry.path].of}"
                yield Finding(found.key, entry.path, what)


def _checksums(found: Inventory, storage: Storage, directory: Path) -> Iterator[Finding]:
    known: dict[str, FileEntry] = {
        entry.path: entry for manifest in found.manifests.values() for entry in manifest.files
    }
    crcs = {delta.path: delta.crc for delta in found.listing.deltas}
    for path in sorted(found.listing.sst_bytes()):
        local = directory / "file"
        try:
            storage.download(path, local)
            why = _difference(local, known.get(path), crcs.get(path))
        except StateStoreError as error:
            why = error.message
        finally:
            local.unlink(missing_ok=True)
        if why:
            yield Finding(found.key, path, why)


def _difference(local: Path, entry: FileEntry | None, crc: int | None) -> str | None:
    if crc is not None and (actual := crc32_of(local)) != crc:
        return f"is damaged: its CRC-32 is {actual:08x}, its name says {crc:08x}"
    if entry is not None and local.stat().st_size != entry.bytes:
        return f"is damaged: it has {local.stat().st_size} bytes, its snapshot says {entry.bytes}"
    if entry is not None and (actual_sha256 := sha256_of(local)) != entry.sha256:
        return f"is damaged: its SHA-256 is {actual_sha256}, its snapshot says {entry.sha256}"
    return None


def _restore_all(key: StoreKey, place: Site, versions: list[VersionId]) -> tuple[int, list[Finding]]:
    keys, findings = 0, []
    for of in versions:
        try:
            restored = restore(place, of)
            keys = restored.base.keys
        except StateStoreError as error:
            findings.append(Finding(key, error.file or "", f"version {of}: {error.message}"))
    return keys, findings


def _print(verdicts: list[Verdict], findings: list[Finding]) -> None:
    rows = [
        (
            str(one.key),
            one.files,
            tables.size(one.bytes),
            one.restored.version if one.restored else "-",
            one.keys,
            tables.runs(sorted({of.version for of in one.restorable})) or "-",
            "damaged" if one.findings else "good",
        )
        for one in verdicts
    ]
    print(tables.table(("store", "files", "bytes", "restored", "keys", "restorable", "verdict"), rows))
    if findings:
        print(
            "\n"
            + tables.table(("store", "file", "problem"), [(str(o.key), o.file, o.what) for o in findings])
        )
    print(f"\n{len(findings)} problems" if findings else "\nno problem found")
