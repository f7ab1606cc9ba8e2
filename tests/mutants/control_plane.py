"""Breaks of the control plane (Python), by room."""

from __future__ import annotations

from mutants.mutant import Mutant

_AGENT = "state_store/agent"
_CHECKPOINT = "state_store/checkpoint"
_DELETION = "state_store/deletion"
_FILES = "state_store/files"
_PLANNING = "state_store/planning"
_SNAPSHOTS = "state_store/snapshots"
_STORAGE = "state_store/storage"
_INTERLEAVINGS = "tests/deletion/test_interleavings.py::TestNoNeededFileIsDeleted"

AGENT = [
    Mutant(
        "another user with the token is let in",
        f"{_AGENT}/server.py",
        "if user != os.getuid() or not known:",
        "if not known:",
        ("tests/agent/test_server.py",),
    ),
    Mutant(
        "whoever runs as this user is let in without the token",
        f"{_AGENT}/server.py",
        "if user != os.getuid() or not known:",
        "if user != os.getuid():",
        ("tests/agent/test_life.py::test_strangers_are_refused",),
    ),
    Mutant(
        "everybody may open the socket",
        f"{_AGENT}/server.py",
        "Path(path).chmod(0o600)",
        "Path(path).chmod(0o666)",
        ("tests/agent/test_server.py",),
    ),
    Mutant(
        "bodies of frames may be of any size",
        f"{_AGENT}/frames.py",
        "if header_bytes > MAX_HEADER_BYTES or body_bytes > MAX_BODY_BYTES:",
        "if header_bytes > MAX_HEADER_BYTES:",
        ("tests/agent/test_server.py",),
    ),
    Mutant(
        "headers of frames may be of any size",
        f"{_AGENT}/frames.py",
        "if header_bytes > MAX_HEADER_BYTES or body_bytes > MAX_BODY_BYTES:",
        "if body_bytes > MAX_BODY_BYTES:",
        ("tests/agent/test_server.py",),
    ),
    Mutant(
        "a frame that ends early counts as the end of the connection",
        f"{_AGENT}/frames.py",
        "if filled == 0:",
        "if True:",
        ("tests/agent/test_server.py",),
    ),
    Mutant(
        "a base that the JVM holds is removed when there is a newer one",
        f"{_AGENT}/local_databases.py",
        "unused = old is not None and old is not base and old.directory not in self._held",
        "unused = old is not None and old is not base",
        ("tests/snapshots/test_merge.py",),
    ),
    Mutant(
        "a base that nobody uses any more stays on the disk",
        f"{_AGENT}/local_databases.py",
        "if not used and self._workspace.owns(directory):",
        "if False:",
        ("tests/snapshots/test_merge.py",),
    ),
]

CHECKPOINT = [
    Mutant(
        "a delta that started from nothing has a parent",
        f"{_CHECKPOINT}/names.py",
        "if self.version == 1 or self.parent == EMPTY_PARENT:",
        "if self.version == 1:",
        ("tests/checkpoint/test_names.py",),
    ),
    Mutant(
        "a plan from a named snapshot takes a newer one",
        f"{_CHECKPOINT}/lineage.py",
        "if at in self._snapshots and start in (None, at):",
        "if at in self._snapshots:",
        ("tests/checkpoint/test_lineage.py",),
    ),
    Mutant(
        "of two deltas of one version the first is taken",
        f"{_CHECKPOINT}/lineage.py",
        "if len(found) > 1:",
        "if len(found) > 2:",
        ("tests/checkpoint/test_lineage.py",),
    ),
    Mutant(
        "versions without the one before count as restorable",
        f"{_CHECKPOINT}/lineage.py",
        "if base is None or base in known:",
        "if True:",
        ("tests/checkpoint/test_lineage.py",),
    ),
    Mutant(
        "a manifest may name any path",
        f"{_CHECKPOINT}/manifest.py",
        "if not is_sst_path(entry.path):",
        "if False:",
        ("tests/checkpoint/test_documents.py",),
    ),
    Mutant(
        "a manifest may name a file twice",
        f"{_CHECKPOINT}/manifest.py",
        "if len(set(values)) < len(values):",
        "if False:",
        ("tests/checkpoint/test_documents.py",),
    ),
    Mutant(
        "a file of the database may be called anything",
        f"{_CHECKPOINT}/manifest.py",
        "if _DATABASE_NAME.fullmatch(entry.name) is None:",
        "if False:",
        ("tests/checkpoint/test_documents.py",),
    ),
    Mutant(
        "two column families may have one id",
        f"{_CHECKPOINT}/metadata.py",
        "if family.id >= RESERVED_FAMILY or any(family.id == other.id for other in families.values()):",
        "if family.id >= RESERVED_FAMILY:",
        ("tests/checkpoint/test_documents.py",),
    ),
    Mutant(
        "an archive may have members of any name",
        f"{_CHECKPOINT}/archive.py",
        "if name != MANIFEST_NAME and _DATABASE_FILE.fullmatch(name) is None:",
        "if False:",
        ("tests/checkpoint/test_documents.py",),
    ),
    Mutant(
        "a snapshot with a file of another size counts as whole",
        f"{_CHECKPOINT}/registry.py",
        "sizes.get(entry.path) == entry.size_bytes for entry",
        "entry.path in sizes for entry",
        ("tests/checkpoint/test_registry.py",),
    ),
    Mutant(
        "the oldest version that stays is retired, too",
        f"{_CHECKPOINT}/registry.py",
        "return self.retire([version for version in self._needs if version.number < floor])",
        "return self.retire([version for version in self._needs if version.number <= floor])",
        ("tests/checkpoint/test_registry.py",),
    ),
    Mutant(
        "a file that another checkpoint keeps is told as about to go",
        f"{_CHECKPOINT}/registry.py",
        "return sorted(going.files().keys() - kept.files().keys())",
        "return sorted(going.files().keys())",
        ("tests/checkpoint/test_registry.py",),
    ),
]

DELETION = [
    Mutant(
        "only the newest version is sure to stay",
        f"{_DELETION}/retention.py",
        "LEAST_CHECKPOINTS = 2\n",
        "LEAST_CHECKPOINTS = 1\n",
        ("tests/deletion/test_retention.py",),
    ),
    Mutant(
        "a lease of half its age is not checked again",
        f"{_DELETION}/lease.py",
        "if self._age_ms() >= self._expiry_ms / 2:",
        "if False:",
        ("tests/deletion/test_lease.py",),
    ),
    Mutant(
        "a lease does not name the files to come",
        f"{_DELETION}/lease.py",
        "        self._announced |= fresh\n        self._write(fresh)\n",
        "        self._announced |= fresh\n",
        ("tests/deletion/test_lease.py", "tests/deletion/test_interleavings.py"),
    ),
    Mutant(
        "snapshots are listed before deltas",
        f"{_DELETION}/catalog.py",
        "(DELTA_DIRECTORY, SNAPSHOT_DIRECTORY)",
        "(SNAPSHOT_DIRECTORY, DELTA_DIRECTORY)",
        ("tests/snapshots/test_publish.py",),
    ),
    Mutant(
        "an archive of another version is accepted",
        f"{_DELETION}/catalog.py",
        "if archive.manifest.version_id != snapshot.version_id:",
        "if False:",
        ("tests/deletion/test_retention.py",),
    ),
    Mutant(
        "a damaged archive stops those that look for the newest",
        f"{_DELETION}/catalog.py",
        "        except DamagedError as error:\n            warnings.append(",
        "        except ZeroDivisionError as error:\n            warnings.append(",
        ("tests/agent/test_damage.py",),
    ),
    Mutant(
        "a snapshot in doubt is counted on",
        f"{_DELETION}/judgement.py",
        "if self.condemned.isdisjoint([name.path, *(entry.path for entry in manifest.files)])",
        "if True",
        ("tests/deletion/test_retention.py",),
    ),
    Mutant(
        "a snapshot whose archive is condemned is counted on",
        f"{_DELETION}/judgement.py",
        "if self.condemned.isdisjoint([name.path, *(entry.path for entry in manifest.files)])",
        "if self.condemned.isdisjoint([entry.path for entry in manifest.files])",
        ("tests/deletion/test_retention.py",),
    ),
    Mutant(
        "orphans of versions whose snapshot may still be replaced go",
        f"{_DELETION}/judgement.py",
        "if name.version < oldest and self",
        "if self",
        ("tests/deletion/test_retention.py",),
    ),
    Mutant(
        "orphans go although an archive that may name them is damaged",
        f"{_DELETION}/judgement.py",
        "if any(self.contents.snapshots[name].manifest is None for name in window):",
        "if False:",
        ("tests/deletion/test_retention.py",),
    ),
    Mutant(
        "a snapshot that was replaced since it was read is deleted",
        f"{_DELETION}/retention.py",
        "if name.path in candidates and is_known:",
        "if name.path in candidates:",
        (f"{_INTERLEAVINGS}::test_a_snapshot_that_is_replaced_while_a_cleaner_reads",),
    ),
    Mutant(
        "one clock that is ahead makes a live lease old",
        f"{_DELETION}/markers.py",
        "return min(ages_ms) > expiry_ms",
        "return max(ages_ms) > expiry_ms",
        ("tests/deletion/test_retention.py",),
    ),
    Mutant(
        "what a lease says of its time is ignored",
        f"{_DELETION}/markers.py",
        "expiry_ms = default_expiry_ms if terms.expiry_ms is None else terms.expiry_ms",
        "expiry_ms = default_expiry_ms",
        ("tests/deletion/test_retention.py",),
    ),
    Mutant(
        "a young damaged tombstone does not stop a clean-up",
        f"{_DELETION}/retention.py",
        "if now_ms - entry.modified_ms <= self._policy.lease_expiry_ms:",
        "if False:",
        ("tests/deletion/test_retention.py",),
    ),
    Mutant(
        "a young damaged tombstone does not keep a writer from sharing",
        f"{_DELETION}/lease.py",
        "            condemned |= self._existing\n",
        "            pass\n",
        ("tests/deletion/test_lease.py",),
    ),
    Mutant(
        "a snapshot that came too late is trusted",
        f"{_DELETION}/lease.py",
        "if self._age_ms() >= self._expiry_ms and (lost := self._renew_and_check()):",
        "if False and (lost := self._renew_and_check()):",
        ("tests/deletion/test_lease.py",),
    ),
]

FILES = [
    Mutant(
        "everybody may look into the local directories",
        f"{_FILES}/workspace.py",
        "directory.mkdir(mode=0o700)",
        "directory.mkdir()",
        ("tests/files/test_local_files.py",),
    ),
    Mutant(
        "the budget is held by looking at every file each time",
        f"{_FILES}/local_cache.py",
        "if known is None or known[0] != changed_ns:",
        "if True:",
        ("tests/files/test_local_files.py",),
    ),
    Mutant(
        "SHA-256 is not compared",
        f"{_FILES}/transfer.py",
        "return None if found == wanted.sha256 else",
        "return None if found else",
        ("tests/snapshots/test_restore.py",),
    ),
    Mutant(
        "CRC-32 is not compared",
        f"{_FILES}/transfer.py",
        "return None if crc == wanted.crc32 else",
        "return None if crc >= 0 else",
        ("tests/files/test_transfer.py",),
    ),
    Mutant(
        "the size of a file without a checksum is not compared",
        f"{_FILES}/transfer.py",
        "if size_bytes != wanted.size_bytes:",
        "if size_bytes != wanted.size_bytes and wanted.verifiable:",
        ("tests/files/test_transfer.py",),
    ),
    Mutant(
        "a local copy that cannot be checked is taken",
        f"{_FILES}/transfer.py",
        "found = cache.find(wanted.path) if wanted.verifiable else None",
        "found = cache.find(wanted.path)",
        ("tests/files/test_transfer.py",),
    ),
    Mutant(
        "results of parallel work come in any order",
        f"{_FILES}/transfer.py",
        "return [future.result() for future in futures]",
        "return [future.result() for future in reversed(futures)]",
        ("tests/files/test_transfer.py",),
    ),
]

PLANNING = [
    Mutant(
        "the delta of a snapshot's own version stays in the chain",
        f"{_PLANNING}/chain.py",
        "if delta.name.version > manifest.version)",
        "if delta.name.version >= manifest.version)",
        ("tests/planning/test_chain.py",),
    ),
    Mutant(
        "there is a way between any two versions",
        f"{_PLANNING}/chain.py",
        "return tuple(reversed(path)) if at == after else None",
        "return tuple(reversed(path))",
        ("tests/planning/test_chain.py",),
    ),
    Mutant(
        "a commit made again is counted twice",
        f"{_PLANNING}/chain.py",
        "if self.deltas and self.deltas[-1].name.version_id == delta.name.version_id:",
        "if False:",
        ("tests/planning/test_chain.py",),
    ),
    Mutant(
        "one delta more than maxDeltas",
        f"{_PLANNING}/policy.py",
        "if deltas >= self._options.max_deltas:",
        "if deltas > self._options.max_deltas:",
        ("tests/planning/test_policy.py",),
    ),
    Mutant(
        "one merge more than fullAfterMerges",
        f"{_PLANNING}/policy.py",
        "if self._most_merges and chain.merges_since_full >= self._most_merges:",
        "if self._most_merges and chain.merges_since_full > self._most_merges:",
        ("tests/planning/test_policy.py",),
    ),
    Mutant(
        "a full checkpoint is made although it needs as many files",
        f"{_PLANNING}/policy.py",
        "if expected * 2 > chain.files:",
        "if False:",
        ("tests/planning/test_policy.py",),
    ),
    Mutant(
        "the jitter is up to twice as long as it may be",
        f"{_PLANNING}/schedule.py",
        "* longest >> 64",
        "* longest >> 63",
        ("tests/planning",),
    ),
    Mutant(
        "the time before is given at the very moment of the next",
        f"{_PLANNING}/schedule.py",
        "if not self._known_from_ms <= now_ms < self._known_until_ms:",
        "if not self._known_from_ms <= now_ms <= self._known_until_ms:",
        ("tests/planning/test_schedule.py",),
    ),
    Mutant(
        "the week begins on another day",
        f"{_PLANNING}/schedule.py",
        "local.isoweekday() % 7)",
        "local.weekday())",
        ("tests/planning/test_schedule.py",),
    ),
]

SNAPSHOTS = [
    Mutant(
        "a restore does not look again when files have vanished",
        f"{_SNAPSHOTS}/restore.py",
        "_TRIES = 3\n",
        "_TRIES = 1\n",
        ("tests/snapshots/test_publish.py",),
    ),
    Mutant(
        "a database may say that it is another version",
        f"{_SNAPSHOTS}/restore.py",
        "if metadata.version_id != version:",
        "if False:",
        ("tests/snapshots/test_restore.py",),
    ),
    Mutant(
        "a snapshot that cannot be read stops the restore",
        f"{_SNAPSHOTS}/restore.py",
        "if plan.snapshot is None or start is not None or _is_delta_at_fault(error, plan):",
        "if True:",
        ("tests/snapshots/test_restore.py",),
    ),
    Mutant(
        "a merge does not verify the deltas",
        f"{_SNAPSHOTS}/merge.py",
        "        verify(context.storage, context.cache, wanted, context.transfer_threads)\n",
        "",
        ("tests/snapshots/test_merge.py",),
    ),
    Mutant(
        "a failed merge leaves its directory",
        f"{_SNAPSHOTS}/merge.py",
        "    except BaseException:\n        shutil.rmtree(directory, ignore_errors=True)\n        raise\n",
        "    except BaseException:\n        raise\n",
        ("tests/snapshots/test_merge.py", "tests/agent/test_life.py"),
    ),
    Mutant(
        "a snapshot of the same version is replaced",
        f"{_SNAPSHOTS}/publish.py",
        "overwrite=full or not context.has_checkpoint_ids",
        "overwrite=True",
        ("tests/snapshots/test_publish.py",),
    ),
    Mutant(
        "new files are not announced before their upload",
        f"{_SNAPSHOTS}/publish.py",
        "    lease.announce(str(file.path) for file in new.values())\n",
        "",
        ("tests/snapshots/test_publish.py",),
    ),
    Mutant(
        "a full merge counts as one more since the last full",
        f"{_SNAPSHOTS}/publish.py",
        "merges_since_full=0 if not shares else",
        "merges_since_full=",
        ("tests/snapshots/test_merge.py", "tests/agent/test_walkthrough.py"),
    ),
]

STORAGE = [
    Mutant(
        "without hard links an existing file is replaced without being asked",
        f"{_STORAGE}/durable.py",
        "    if path.exists():\n        raise FileExistsError",
        "    if False:\n        raise FileExistsError",
        ("tests/storage/test_local.py",),
    ),
    Mutant(
        "a directory is not synced after a link",
        f"{_STORAGE}/durable.py",
        "    if not overwrite and _link(source, path):\n        _sync(path.parent)\n",
        "    if not overwrite and _link(source, path):\n",
        ("tests/storage/test_local.py",),
    ),
    Mutant(
        "a file is not synced before it is linked",
        f"{_STORAGE}/durable.py",
        "    _sync(source)\n",
        "",
        ("tests/storage/test_local.py",),
    ),
    Mutant(
        "bytes are not synced before they get their name",
        f"{_STORAGE}/durable.py",
        "            _write_all(descriptor, data)\n            os.fsync(descriptor)\n",
        "            _write_all(descriptor, data)\n",
        ("tests/storage/test_local.py",),
    ),
    Mutant(
        "a new directory is not synced in its parent",
        f"{_STORAGE}/durable.py",
        "    directory.mkdir(exist_ok=True)\n    _sync(directory.parent)\n",
        "    directory.mkdir(exist_ok=True)\n",
        ("tests/storage/test_local.py",),
    ),
    Mutant(
        "an existing file is replaced without being asked",
        f"{_STORAGE}/durable.py",
        "        if overwrite:\n            temporary.rename(path)\n",
        "        if True:\n            temporary.rename(path)\n",
        ("tests/storage/test_local.py",),
    ),
    Mutant(
        "a short write is the whole",
        f"{_STORAGE}/durable.py",
        "        view = view[os.write(descriptor, view) :]\n",
        "        os.write(descriptor, view)\n        break\n",
        ("tests/storage/test_local.py",),
    ),
    Mutant(
        "files are listed in any order",
        f"{_STORAGE}/local.py",
        "        return sorted(entries, key=lambda entry: entry.name)\n",
        "        return entries\n",
        ("tests/storage/test_local.py",),
    ),
]

EMBEDDED = [
    Mutant(
        "each commit keeps one more file open",
        "state_store/embedded/store.py",
        "if sorted_runs(self._open.files()) > MOST_RUNS:",
        "if False:",
        (
            "tests/embedded/test_embedded.py::test_many_commits_and_checkpoints_leave_few_files_and_one_directory",
        ),
    ),
    Mutant(
        "a key that is put again is counted again",
        "state_store/embedded/store.py",
        "+ (value is not None) - was",
        "+ (value is not None)",
        ("tests/embedded/test_embedded.py",),
    ),
    Mutant(
        "a removed row comes back in scans",
        "state_store/embedded/store.py",
        "            if change[1] is not None:\n                yield key, change[1]\n",
        "            yield key, change[1] or value\n",
        ("tests/embedded/test_embedded.py",),
    ),
    Mutant(
        "a delta lacks its reserved record",
        "state_store/engine/sst.py",
        "        writer[META_KEY] = metadata.to_json()\n",
        "",
        ("tests/embedded/test_embedded.py",),
    ),
]

MUTANTS = [*AGENT, *CHECKPOINT, *DELETION, *FILES, *PLANNING, *SNAPSHOTS, *STORAGE, *EMBEDDED]
