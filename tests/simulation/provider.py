"""A model of the data plane: the store of one partition in one run, in one JVM.

It keeps the rows of the versions that it has in memory, writes deltas, calls its agent as docs/protocol.md
says, and takes the bases that merges make. Whatever it is given to read is compared with what was committed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulation import engine
from simulation.restored import rows_of
from simulation.simulated_agent import never_internal
from simulation.truth import EMPTY, Changes, Rows, Version, changed
from state_store.agent.calls import workspace_name
from state_store.core.checkpoint.names import EMPTY_PARENT
from state_store.core.checkpoint.stored_documents import ColumnFamily, DeltaMetadata
from state_store.errors import ConflictError, DamagedError, MissingError, StateStoreError, StorageError

if TYPE_CHECKING:
    from simulation.executor import Executor
    from simulation.partition import Partition

CALL_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Task:
    """Identity of a task as Spark gives it.

    It has the application (8 hexadecimal digits), a number that grows with each task that Spark launches, and
    a flag: a task of the same job was launched for this partition before. `is_wanted` says whether the
    application still runs. Without ids a task does not begin after its application has ended, as executors
    end with it: such a task could not be distinguished from one of the next application.
    """

    application: str
    number: int
    again: bool
    is_wanted: Callable[[], bool] = lambda: True


class Provider:
    """See the module. `is_closed` once the executor has unloaded it, `newest` is what it committed last."""

    def __init__(self, executor: Executor, run: str, partition: Partition, instance: int) -> None:
        self.executor = executor
        self.run = run
        self.partition = partition
        self.instance = instance
        self.newest: Version | None = None
        self.users = 0
        self.used_at_s = executor.site.scheduler.now_s
        self._memory: dict[Version, Rows] = {EMPTY: {}}
        self._base: dict[str, Any] | None = None
        self._offered: dict[str, Any] | None = None
        self.held: set[str] = set()
        self._incoming: Path | None = None
        self._taken: dict[int, str] = {}
        self._last: tuple[Version, dict[str, Any]] | None = None
        self._tried = 0
        self.is_closed = False
        self._files = itertools.count(1)

    def run_task(self, before: Version, change: Callable[[Rows], Changes], task: Task) -> Version:
        """A task of the next version: loads the one before, changes rows, commits. Raises StateStoreError.

        Without ids Spark names the version before by its number; here `before` says what it must be then.
        """
        site = self.executor.site
        if self.is_closed:
            raise StorageError("the provider was closed")
        self.users += 1
        try:
            base, rows = self._load(before)
            if not site.ids:
                self.partition.truth.check(before, rows, "what memory has")
            seen = self._seen(base, task)
            if not site.ids and not task.is_wanted():
                raise StorageError("the application of this task has ended")
            site.scheduler.sleep(self.executor.chance.random() * 0.5)
            version = self._commit(base, rows, change(rows), seen, task)
            if not site.ids and site.weather.calm_factor == 1 and self.executor.chance.random() < 0.03:
                self._given_up(version)
                raise StorageError("the task failed after its commit")
            return version
        finally:
            self.users -= 1
            self.used_at_s = site.scheduler.now_s

    def maintain(self) -> None:
        """Do the work of Spark's maintenance: clean up, or unload a provider that was not used for long."""
        if not self.users and self.executor.site.scheduler.now_s - self.used_at_s > 120:
            self.close()
        elif self.newest is not None:
            version, id_ = self.newest
            self._call("cleanup", version=version, id=id_)

    def snapshot(self, kind: str) -> dict[str, Any]:
        """Ask for a snapshot of the newest version, as Spark does, or somebody at the command line.

        Its event has the base, which is taken from there.
        """
        version, id_ = self.newest or EMPTY
        return self._call("snapshot", 600.0, version=version, id=id_, kind=kind, reason="asked")

    def offered(self, base: dict[str, Any]) -> None:
        """A merge made a base; it is used from the next task on."""
        directory = Path(base["directory"])
        self.held.add(str(directory))
        try:
            rows = self._rows_of(base, base["version"])
        except DamagedError as error:  # a merge does not read each block that it shares
            self._found_damage(directory, error)
            return
        except StateStoreError:
            self._release(directory)
            return
        if self.is_closed:
            self._release(directory)
            return
        self.partition.truth.check((base["version"], base["id"]), rows, "the merged base")
        if base["page_bytes"]:
            self.executor.site.count("merge: pages")
        before, self._offered = self._offered, base
        if before is not None:
            self._release(Path(before["directory"]))

    def _rows_of(self, answer: dict[str, Any], version: int) -> Rows:
        return rows_of(answer, version, partial(self._ask, Path(answer["directory"])))

    def take_offered(self) -> None:
        """Use the base of the newest merge, if there is one, and give the one before back."""
        if self._offered is not None:
            before, self._base, self._offered = self._base, self._offered, None
            if before is not None:
                self._release(Path(before["directory"]))

    def close(self) -> None:
        self.is_closed = True
        self.executor.providers.pop((self.run, self.partition.number), None)
        try:
            if self._call("close")["owed"]:
                self.executor.owed[self.instance] = self._described()
        except StateStoreError:
            # A restore that nobody waited for may have left a base there, too.
            digest = workspace_name(self.run, self.partition.bucket.location, self.instance)
            self.executor.unheard.add(self.executor.directory / digest)
            raise

    def _load(self, version: Version) -> tuple[Version, Rows]:
        """Bring a version into memory. Returns the name that it has there, and its rows."""
        gone = [directory for directory in self.held if not Path(directory).is_dir()]
        assert not gone, f"bases are gone that the JVM has open: {gone}"
        self.take_offered()
        ids = self.executor.site.ids
        known = version if ids or version == EMPTY else (version[0], self._taken.get(version[0], ""))
        self._read_base_again()
        rows = self._memory.get(known)
        if rows is None:
            answer, rows = self._restored(version)
            self.partition.truth.check(version, rows, "what was restored")
            if not ids:
                known = version[0], answer["id"]
                self._take(known, answer["attempts"])
            before, self._base = self._base, {**answer, "version": version[0], "id": version[1]}
            self._memory = {EMPTY: {}, known: rows}
            if before is not None:
                self._release(Path(before["directory"]))
        return known, rows

    def _read_base_again(self) -> None:
        """Now and then read the base again, of which pages may be gone by then.

        If that is not possible, the version that the task needs is restored.
        """
        base = self._base
        if base is None or not base["sparse"] or self.executor.chance.random() < 0.7:
            return
        directory = Path(base["directory"])
        try:
            rows = self._rows_of(base, base["version"])
        except DamagedError as error:
            self._found_damage(directory, error)
        except StateStoreError:
            self._release(directory)
        else:
            self.partition.truth.check((base["version"], base["id"]), rows, "the base in use")
            self.executor.site.count("base read again")
            return
        if self._base is base:
            self._base, self._memory = None, {EMPTY: {}}

    def _restored(self, version: Version) -> tuple[dict[str, Any], Rows]:
        """Restore a version as the data plane does, and return the answer and the rows.

        If they cannot be read, the task fails, or it restores again with all files verified.

        Raises:
            StateStoreError: The restore failed.
        """
        site, thorough = self.executor.site, False
        id_ = version[1] if site.ids else None
        while True:
            reported = self.executor.reported.pop(self.partition.number, None)
            answer = self._call("restore", version=version[0], id=id_, thorough=thorough)
            directory = Path(answer["directory"])
            is_verified = thorough or (reported is not None and self.executor.has_agent(reported))
            self.held.add(str(directory))
            self._count_restore(answer, is_verified)
            try:
                return answer, self._rows_of(answer, version[0])
            except DamagedError as error:
                # What is fetched after a restore may be damaged on its way.
                assert not is_verified or answer["sparse"], f"all files had to be verified, and {error}"
                self._found_damage(directory, error)
                if site.weather.calm_factor == 1 and self.executor.chance.random() < 0.5:
                    raise
            except MissingError as error:  # a clean-up took a file that was not here as a whole
                assert answer["sparse"], error
                self._release(directory)
            except FileNotFoundError as error:
                assert site.is_cleaned, error
                self._release(directory)
                raise StorageError(f"a local file is gone: {error}") from error
            except StateStoreError:
                self._release(directory)
                raise
            thorough = True

    def _ask(self, directory: Path, name: str, offset: int, length: int) -> None:
        self._call("ranges", directory=str(directory), ranges=[[name, offset, length]])

    def _found_damage(self, directory: Path, error: DamagedError) -> None:
        """The agent is told, and gets the base back."""
        site = self.executor.site
        site.scheduler.note("damaged:", str(error).replace(str(site.directory), ""))
        is_gone = site.is_cleaned and isinstance(error.__cause__, FileNotFoundError)
        assert not site.is_honest or is_gone, f"storage damages nothing, and {error}"
        site.count("damage that a reader found")
        try:
            self._call("damaged", directory=str(directory))
            self.executor.reported[self.partition.number] = self.executor.agent
        except StateStoreError as failure:
            never_internal(failure)
        self._release(directory)

    def _count_restore(self, answer: dict[str, Any], is_verified: bool) -> None:
        for name in ("loose_deltas", "sparse", "page_bytes"):
            if answer[name]:
                self.executor.site.count(f"restore: {name}")
        if answer["loose_deltas"] and not answer["base"]["version"]:
            self.executor.site.count("restore: no base")
        if is_verified:
            self.executor.site.count("restore: thorough")

    def _take(self, version: Version, seen: dict[str, Any]) -> None:
        """Without ids: the number stands for this attempt, above which storage had those."""
        self._taken[version[0]] = version[1] or ""
        self._last = version, seen

    def _seen(self, base: Version, task: Task) -> dict[str, Any]:
        """The attempts in storage above the version that the task builds on, without ids."""
        if self.executor.site.ids:
            return {"ordinal": 0, "seen": []}
        is_first = not task.again and base[0] + 1 > self._tried
        if is_first and self._last is not None and self._last[0] == base:
            return self._last[1]
        return self._call("attempts", version=base[0])

    def _given_up(self, version: Version) -> None:
        """Without ids: the task failed after its commit."""
        if self._taken.get(version[0]) == version[1]:
            del self._taken[version[0]]
        try:
            self._call("refuse", version=version[0], id=version[1])
        except StateStoreError as error:
            never_internal(error)

    def _commit(
        self, before: Version, rows: Rows, changes: Changes, seen: dict[str, Any], task: Task
    ) -> Version:
        site, runtime = self.executor.site, self.executor.jvm.runtime
        self._tried = max(self._tried, before[0] + 1)
        id_ = f"a{seen['ordinal']}-{task.application}-{task.number}-{runtime.unique(4)}"
        if site.ids:
            id_ = runtime.uuid()
        version: Version = before[0] + 1, id_
        after = changed(rows, changes)
        self.partition.truth.rows[version] = after
        parent = before[1] or EMPTY_PARENT
        metadata = DeltaMetadata(
            version[0], id_, parent, len(after), 0, 0, {"default": ColumnFamily(0, False, len(after))}, "test"
        )
        path = self._incoming_directory() / f"{version[0]}_{next(self._files)}.sst"
        size, crc = engine.write_delta(path, sorted(changes.items()), metadata)
        try:
            answer = self._call(
                "commit",
                seen=seen["seen"],
                version=version[0],
                id=id_,
                parent=parent,
                path=str(path),
                bytes=size,
                crc=crc,
                keys=len(after),
                memory_short=self.executor.chance.random() < 0.1,
            )
        except StateStoreError as error:
            path.unlink(missing_ok=True)
            if isinstance(error, ConflictError):
                self._taken, self._last = {}, None
            raise
        self._memory[version] = after
        if not site.ids:
            self._take(version, answer["attempts"])
        self.newest = version
        return version

    def _incoming_directory(self) -> Path:
        if self._incoming is None:
            self._incoming = Path(self._call("open")["incoming"])
        self._incoming.mkdir(parents=True, exist_ok=True)
        return self._incoming

    def _release(self, directory: Path) -> None:
        """A courtesy: the next agent finds what this one was not told."""
        self.held.discard(str(directory))
        try:
            self._call("release", directory=str(directory))
        except StateStoreError as error:
            never_internal(error)

    def _call(self, op: str, timeout_s: float = CALL_TIMEOUT_S, **arguments: Any) -> dict[str, Any]:
        return self.executor.call(op, timeout_s, self._described, **arguments)

    def _described(self) -> dict[str, Any]:
        """Return the store in a request."""
        site = self.executor.site
        return {
            "instance": self.instance,
            "location": self.partition.bucket.location,
            "operator": 0,
            "partition": self.partition.number,
            "name": "default",
            "run": self.run,
            "ids": site.ids,
            "retain": site.retain,
            "options": site.options,
            "held": sorted(self.held),
        }
