"""Breaks of `state_store/agent`: a commit counts once and as a whole, a base belongs to its lineage, and
only its JVM talks to an agent.
"""

from __future__ import annotations

from mutants.mutant import Mutant

_AGENT = "state_store/agent"
_WITHOUT_IDS = ("tests/agent/test_attempts_without_ids.py",)

_LINEAGE = "tests/core/snapshots/test_merge.py"

MUTANTS = [
    Mutant(
        "half a delta under its name counts as the commit",
        f"{_AGENT}/open_store.py",
        "entry.name == name and entry.size_bytes == size_bytes",
        "entry.name == name",
        ("tests/agent/wire/test_calls.py::test_half_a_delta_under_its_name_is_not_taken_for_the_commit",),
    ),
    Mutant(
        "a base from before the cut of another process stays",
        f"{_AGENT}/open_store.py",
        "            unused = self._adopt(None)\n        _remove(unused)\n        return True\n",
        "        _remove(unused)\n        return True\n",
        (f"{_LINEAGE}::test_a_base_that_is_newer_than_the_cut_of_another_process_is_given_up",),
    ),
    Mutant(
        "a snapshot of another lineage counts",
        f"{_AGENT}/merges/merging.py",
        "if name is not None and name.version_id in own]",
        "if name is not None]",
        (f"{_LINEAGE}::test_a_snapshot_of_another_lineage_does_not_count",),
    ),
    Mutant(
        "merges start from the base of another lineage",
        f"{_AGENT}/open_store.py",
        "                and chain.between(base.version, chain.version) is not None\n",
        "",
        (f"{_LINEAGE}::test_no_merge_starts_from_a_base_of_another_lineage",),
    ),
    Mutant(
        "two calls open one store",
        f"{_AGENT}/calls.py",
        "        while instance in self._opening:\n            self._changed.wait()\n",
        "",
        ("tests/agent/test_opening.py",),
    ),
    Mutant(
        "a late release to a new agent opens the store again",
        f"{_AGENT}/calls.py",
        "store = self._if_open(instance)\n        if store is not None:\n            store.head",
        "store = self.of(fields)\n        if store is not None:\n            store.head",
        ("tests/agent/test_late_calls.py",),
    ),
    Mutant(
        "any directory is removed for a store that is not open",
        f"{_AGENT}/calls.py",
        "        if directory.parent.name == own and is_base(directory):\n",
        "        if True:\n",
        ("tests/agent/test_late_calls.py",),
    ),
    Mutant(
        "damage is forgotten if the provider that found it is closed",
        f"{_AGENT}/calls.py",
        "            self._damage_reports.add(fields.store_id.location)\n",
        "            pass\n",
        ("tests/agent/test_late_calls.py",),
    ),
    Mutant(
        "an attempt without ids is stored without a check",
        f"{_AGENT}/open_store.py",
        "    elif store.store_id.has_checkpoint_ids:\n        _store_delta(store, delta, request)\n",
        "    elif True:\n        _store_delta(store, delta, request)\n",
        _WITHOUT_IDS,
    ),
    Mutant(
        "an attempt of a failed task still counts",
        f"{_AGENT}/calls.py",
        '        refuse(store.context.storage, fields.version, "its task failed")\n',
        "",
        _WITHOUT_IDS,
    ),
    Mutant(
        "another user with the token is let in",
        f"{_AGENT}/calls.py",
        "if user != os.getuid() or not self._knows_token",
        "if not self._knows_token",
        ("tests/agent/wire/test_server.py",),
    ),
    Mutant(
        "a process of this user is accepted without the token",
        f"{_AGENT}/calls.py",
        "if user != os.getuid() or not self._knows_token(greeting := self._greeting(channel)):",
        "if user != os.getuid() or (greeting := self._greeting(channel)) is None:",
        ("tests/agent/process/test_agent_process.py::test_strangers_are_refused",),
    ),
    Mutant(
        "everybody may open the socket",
        f"{_AGENT}/calls.py",
        "Path(path).chmod(0o600)",
        "Path(path).chmod(0o666)",
        ("tests/agent/wire/test_server.py",),
    ),
    Mutant(
        "bodies of frames may be of any size",
        "state_store/core/storage/hadoop.py",
        "if header_bytes > max_header_bytes or body_bytes > max_body_bytes:",
        "if header_bytes > max_header_bytes:",
        ("tests/agent/wire/test_server.py",),
    ),
    Mutant(
        "a version is stored although the agent does not know its parent",
        f"{_AGENT}/open_store.py",
        "    _check_follows(delta, before)\n",
        "",
        ("tests/agent/test_invariants.py",),
    ),
    Mutant(
        "a delta is stored without a look at its checksum",
        f"{_AGENT}/open_store.py",
        "if received_bytes != size_bytes or crc != request.crc32:",
        "if received_bytes != size_bytes:",
        ("tests/bad_input/test_content.py::test_a_delta_that_differs_from_its_announcement_is_refused",),
    ),
    Mutant(
        "a base that the JVM holds is removed after a newer merge",
        f"{_AGENT}/open_store.py",
        "unused = old is not None and old is not base and old.directory not in self._held",
        "unused = old is not None and old is not base",
        ("tests/core/snapshots/test_merge.py",),
    ),
    Mutant(
        "the version just committed is merged, which Spark may give up",
        f"{_AGENT}/calls.py",
        "self.scheduler.committed(store, before,",
        "self.scheduler.committed(store, answer.chain,",
        ("tests/agent/merges/test_events.py",),
    ),
    Mutant(
        "an event is forgotten once it was sent",
        f"{_AGENT}/merges/merging.py",
        "return list(itertools.islice(self._events, MAX_ANSWERED))",
        "sent, self._events = list(self._events), deque()\n            return sent",
        ("tests/agent/merges/test_events.py",),
    ),
    Mutant(
        "the directory of a dead agent is removed although its JVM lives",
        f"{_AGENT}/local_roots.py",
        'return bool(fields["started"] != _start_time(fields["jvm"]))',
        "return True",
        ("tests/agent/process/test_local_disk.py",),
    ),
    Mutant(
        "a local directory may be another user's",
        f"{_AGENT}/local_roots.py",
        "if not {parent.lstat().st_uid, status.st_uid} <= {os.getuid(), 0}:",
        "if False:",
        ("tests/agent/process/test_local_disk.py",),
    ),
    Mutant(
        "a link stands for the kept files",
        f"{_AGENT}/local_roots.py",
        "if not stat.S_ISDIR(status.st_mode):",
        "if False:",
        ("tests/agent/process/test_local_disk.py",),
    ),
]
