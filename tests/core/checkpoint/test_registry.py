"""The registry: the walk-through that Flink's documentation made known, and a random walk."""

from __future__ import annotations

import copy
import tracemalloc

import pytest
from deletion import made_up
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from state_store.core.checkpoint.lineage import Lineages
from state_store.core.checkpoint.names import EMPTY_PARENT, DeltaName, VersionId
from state_store.core.checkpoint.registry import Registry, StoredFile, _Base, _Needs
from state_store.errors import MissingError


def sst(number: int | str) -> StoredFile:
    return StoredFile(f"shared/{number}.sst", 100, 1, "0" * 64)


def cp(number: int) -> VersionId:
    return VersionId(number, f"cp{number}")


def paths(files: list[StoredFile]) -> set[str]:
    return {file.path for file in files}


def register(registry: Registry, version: VersionId, files: list[StoredFile]) -> list[StoredFile]:
    """Note that a checkpoint needs exactly these files, and return those that are freed."""
    return registry._replacing({version: _Needs(_Base(files), None)})


class TestTheWalkThrough:
    """Two checkpoints are retained; numbers in brackets are merged files."""

    def test_references_are_counted_at_every_step(self) -> None:
        registry = Registry()
        first, two, three, four, five = (sst(number) for number in range(1, 6))
        merged, merged_again = sst("1-2-3"), sst("4-5-6")

        def counts() -> dict[str, int]:
            return {file.name.removesuffix(".sst"): registry.count(file.path) for file in registry.entries()}

        register(registry, cp(1), [first, two])
        assert counts() == {"1": 1, "2": 1}

        register(registry, cp(2), [first, two, three, four])
        assert counts() == {"1": 2, "2": 2, "3": 1, "4": 1}

        register(registry, cp(3), [merged, four, five])
        assert registry.retire([cp(1)]) == []
        assert counts() == {"1": 1, "2": 1, "3": 1, "4": 2, "1-2-3": 1, "5": 1}

        register(registry, cp(4), [merged, merged_again])
        assert paths(registry.retire([cp(2)])) == {first.path, two.path, three.path}
        assert counts() == {"4": 1, "1-2-3": 2, "5": 1, "4-5-6": 1}
        assert registry.holders(merged.path) == [cp(3), cp(4)]
        assert registry.checkpoints() == [cp(3), cp(4)]

        seven = sst(7)
        register(registry, cp(5), [merged, merged_again, seven])
        assert paths(registry.retire([cp(3)])) == {four.path, five.path}

        full = sst("full")
        register(registry, cp(6), [full])
        assert registry.retire([cp(4)]) == []
        assert counts() == {"1-2-3": 1, "4-5-6": 1, "7": 1, "full": 1}

        eight = sst(8)
        register(registry, cp(7), [full, eight])
        assert paths(registry.retire([cp(5)])) == {merged.path, merged_again.path, seven.path}
        assert counts() == {"full": 2, "8": 1}


class TestSets:
    def test_hearing_of_a_checkpoint_twice_changes_nothing(self) -> None:
        registry = Registry()
        register(registry, cp(1), [sst(1)])
        before = copy.deepcopy(registry)
        assert register(registry, cp(1), [sst(1)]) == []
        assert registry == before

    def test_retiring_a_known_or_unknown_checkpoint_again_changes_nothing(self) -> None:
        registry = Registry()
        register(registry, cp(1), [sst(1)])
        assert paths(registry.retire([cp(1)])) == {sst(1).path}
        assert registry.retire([cp(1)]) == []
        assert registry.retire([cp(9)]) == []
        assert registry.entries() == []

    def test_other_files_for_a_checkpoint_replace_its_old_ones(self) -> None:
        registry = Registry()
        register(registry, cp(1), [sst(1), sst(2)])
        assert paths(register(registry, cp(1), [sst(2), sst(3)])) == {sst(1).path}
        assert paths(registry.files(cp(1))) == {sst(2).path, sst(3).path}

    def test_the_predicted_files_are_those_that_are_freed(self) -> None:
        registry = Registry()
        register(registry, cp(1), [sst(1), sst(2)])
        register(registry, cp(2), [sst(2), sst(3)])
        register(registry, cp(3), [sst(4)])
        assert registry.freed_below(2) == [sst(1).path]  # the second one keeps the other file of the first
        assert registry.freed_below(3) == sorted(sst(number).path for number in (1, 2, 3))
        for floor in (2, 3):
            foretold = registry.freed_below(floor)
            assert foretold == sorted(paths(registry.retire_below(floor)))
        assert registry.checkpoints() == [cp(3)]

    def test_an_unknown_file_has_no_holders(self) -> None:
        with pytest.raises(MissingError, match="nobody"):
            Registry().entry("nobody")
        assert Registry().count("nobody") == 0
        assert Registry().holders("nobody") == []

    def test_a_commit_on_what_is_not_known(self) -> None:
        with pytest.raises(MissingError, match=r"which 'delta/.*builds on"):
            Registry().commit(made_up.delta(5), 1)

    def test_a_checksum_is_known_as_long_as_a_holder_knows_it(self) -> None:
        registry = Registry()
        plain = StoredFile.of_delta(made_up.delta(1), 5)
        known = StoredFile(plain.path, 5, 1, "a" * 64, plain.crc32)
        register(registry, cp(1), [plain])
        assert registry.entry(plain.path).sha256 is None
        register(registry, cp(2), [known])
        assert registry.entry(plain.path) == known
        registry.retire([cp(2)])
        assert registry.entry(plain.path) == plain


def test_a_checkpoint_costs_its_delta_however_many_files_the_snapshot_has() -> None:
    def grown_bytes(files: int) -> int:
        registry = Registry()
        register(registry, made_up.version(1), [sst(number) for number in range(files)])
        tracemalloc.start()
        for number in range(2, 102):
            registry.commit(made_up.delta(number), 1000)
        taken = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert len(registry.files(made_up.version(101))) == files + 100
        return taken

    assert grown_bytes(500) < 1.5 * grown_bytes(5) < 200_000


class FilesAndRegistry(RuleBasedStateMachine):
    """A store whose files are in a dict: after every step the registry is what the files say."""

    @initialize()
    def begin(self) -> None:
        self.files: dict[str, bytes] = {}
        self.registry = Registry()
        self.floor = 0
        self.names = 0

    def _tips(self) -> list[VersionId]:
        return self.registry.checkpoints()

    def _commit(self, base: VersionId | None, version: int) -> None:
        self.names += 1
        parent = base.checkpoint_id if base else EMPTY_PARENT
        delta = DeltaName(version, f"n{self.names}", parent, self.names)
        self.files[delta.path] = b"x" * (1 + self.names % 5)
        self.registry.commit(delta, len(self.files[delta.path]))

    @rule()
    def commit(self) -> None:
        tips = self._tips()
        newest = tips[-1] if tips else None
        self._commit(newest, newest.number + 1 if newest else 1)

    @rule(data=st.data())
    def commit_on_an_older_version(self, data: st.DataObject) -> None:
        tips = self._tips()
        if tips:
            base = data.draw(st.sampled_from(tips))
            self._commit(base, base.number + 1)

    @rule(data=st.data(), share=st.booleans(), take_over=st.booleans())
    def merge(self, data: st.DataObject, share: bool, take_over: bool) -> None:
        tips = self._tips()
        if not tips:
            return
        tip = data.draw(st.sampled_from(tips))
        if tip in stores_snapshots(self.files):
            return
        self.names += 1
        fresh = made_up.shared(tip.number, self.names)
        paths = {fresh}
        for file in self.registry.files(tip):
            if (file.path.startswith("shared/") and share) or (file.path.startswith("delta/") and take_over):
                paths.add(file.path)
        self.files[fresh] = made_up.content(fresh)
        sizes = {path: len(self.files[path]) for path in paths}
        manifest = made_up.sized_manifest(tip, sizes)
        self.files[manifest.snapshot.path] = made_up.packed(manifest)
        self.registry.publish(manifest, len(self.files[manifest.snapshot.path]))

    @rule(keep=st.integers(2, 5))
    def retire(self, keep: int) -> None:
        tips = self._tips()
        if not tips:
            return
        self.floor = max(self.floor, tips[-1].number - keep + 1)
        for file in self.registry.retire_below(self.floor):
            del self.files[file.path]

    @rule()
    def hear_again(self) -> None:
        for delta, size_bytes in made_up.listing(self.files).deltas.items():
            if delta.version_id in self._tips():
                self.registry.commit(delta, size_bytes)

    @invariant()
    def the_files_say_the_same(self) -> None:
        listing, read = made_up.listing(self.files), made_up.manifests(self.files)
        rebuilt = Registry.rebuild(listing, read, floor=self.floor)
        assert rebuilt == self.registry
        assert rebuilt.entries() == self.registry.entries()

    @invariant()
    def what_is_needed_is_there(self) -> None:
        held = {file.path for file in self.registry.entries()}
        assert held <= self.files.keys()
        for path in held:
            assert self.registry.count(path) == len(self.registry.holders(path)) > 0


def stores_snapshots(files: dict[str, bytes]) -> set[VersionId]:
    return {name.version_id for name in made_up.listing(files).snapshots}


TestRandomWalk = FilesAndRegistry.TestCase
TestRandomWalk.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_a_snapshot_whose_files_are_not_whole_counts_as_absent() -> None:
    files = {made_up.delta(number).path: b"abc" for number in (1, 2)}
    fresh = made_up.shared(2, 1)
    files[fresh] = made_up.content(fresh)
    files[made_up.snapshot(2).path] = made_up.archive(made_up.version(2), [fresh])
    read = made_up.manifests(files)
    assert Registry.rebuild(made_up.listing(files), read).count(fresh) == 1
    files[fresh] = files[fresh][:-1]
    rebuilt = Registry.rebuild(made_up.listing(files), read)
    assert rebuilt.count(fresh) == 0
    assert rebuilt.count(made_up.delta(1).path) == 2
    assert Lineages(made_up.listing(files).deltas, []).restorable() == rebuilt.checkpoints()
