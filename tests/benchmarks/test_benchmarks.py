"""Tests of the benchmarks: every provider runs in miniature, and wrong content is detected."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
import scala_jars

from benchmarks import benchmark_command, medians, results
from benchmarks.comparisons import data_plane, look_ahead, processors, sst_files
from benchmarks.environment import jvm, providers, s3_service
from benchmarks.page import goals, report
from benchmarks.results import CHANGELOG, HDFS, OURS, Results, errors
from benchmarks.runner import STORE_LEVEL
from benchmarks.scenarios import executors, large_store, services, store_level

MINIATURE = store_level.Extent("quick", keys=500, segments=1, batches=2, largest=1_000)


def _subjects() -> list[providers.Variant]:
    return [*store_level.peers(256)[:3], providers.incremental(64)]


def _has_jar() -> bool:
    return providers.jar_for(pyspark.__version__) is not None


@pytest.fixture(scope="module", autouse=True)
def quick_java() -> Iterator[None]:
    """The driver's JVMs live for seconds; their figures do not count here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")
        yield


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Run each kind of step once, with all available providers."""
    batches = [
        store_level.batches(MINIATURE, pattern, 50, maintenance_every=1, warmup_segments=0)
        for pattern in ("uniform", "zipf", "append", "sliding", "read-only")
    ]
    plain = [
        store_level.load(500),
        *batches,
        {"do": "scan", "repetitions": 1},
        {"do": "scan", "label": "scan with uncommitted rows", "repetitions": 1, "uncommitted": 20},
        {"do": "restore", "repetitions": 1},
        {"do": "recover", "size": 50, "repetitions": 1},
        {"do": "storage"},
        {"do": "memory"},
        {"do": "verify"},
    ]
    prefix = [
        store_level.load(500),
        batches[0],
        {"do": "prefix", "scans": 20, "repetitions": 1},
        {"do": "verify"},
    ]
    ordered = [variant for variant in _subjects() if variant.name != "hdfs"]
    first = [store_level.load(500), {"do": "first", "rows": 100, "repetitions": 1}]
    ours = _has_jar()
    cases = [
        store_level.case("plain", _subjects(), plain, ours=ours),
        store_level.case("prefix", _subjects(), prefix, ours=ours, layout="prefix"),
        store_level.case("range", ordered, first, ours=ours, layout="range"),
        store_level.case("stores", _subjects(), [store_level.load(200), batches[0]], ours=ours, stores=3),
    ]
    events = jvm.run(cases, heap_mb=1024, timeout_s=600, log=tmp_path_factory.mktemp("log") / "driver.log")
    specs = {case["name"]: case for case in cases}
    result = {"scenario": "store", "bench": "quick", "seconds": 1, "ours": ours, "machine": _MACHINE}
    return Results({"store": {**result, "specs": specs, "cases": medians.by_case(events)}})


_MACHINE = {
    "processor": "p",
    "cores": 2,
    "memory_bytes": 1 << 30,
    "kernel": "k",
    "file_system": "f",
    "fsync_ms": {"write": 0.1, "file": 1.0, "link": 0.1, "directory": 0.5},
    "load_average": 0.0,
    "python": "3",
    "java": "17",
    "packages": {"pyspark": pyspark.__version__},
    "jars": [],
    "commit": "c",
    "command": "",
    "time": "",
}


@pytest.mark.spark
@pytest.mark.tier("more")
def test_every_provider_returns_the_model_s_rows(measured: Results) -> None:
    assert errors(measured.scenarios["store"]) == []


@pytest.mark.spark
@pytest.mark.tier("more")
def test_every_provider_takes_every_step(measured: Results) -> None:
    names = {variant.name for variant in _subjects() if _has_jar() or not variant.is_ours}
    for case, labels in measured.scenarios["store"]["cases"].items():
        wanted = names - {"hdfs"} if case == "range" else names
        for label, subjects in labels.items():
            assert set(subjects) == wanted, (case, label)


@pytest.mark.spark
@pytest.mark.tier("more")
def test_batches_carry_times_bytes_and_cpu(measured: Results) -> None:
    for subject, stats in measured.step("store", "plain", "uniform 50").items():
        batch, segments = stats["batch"], stats["segments"]
        assert batch["wall_ms"]["n"] == 2, subject
        for part in ("open_ms", "rows_ms", "commit_ms"):
            assert 0 < batch[part]["max"] < batch["wall_ms"]["max"], (subject, part)
        assert segments["total"]["written_bytes"] > 0, subject
        assert segments["cpu_jvm_s"]["median"] > 0, subject


@pytest.mark.spark
@pytest.mark.tier("more")
def test_memory_has_the_system_s_counts(measured: Results) -> None:
    for subject, stats in measured.step("store", "plain", "memory").items():
        memory = stats["memory"]
        for name in ("jvm_threads", "jvm_descriptors", "jvm_mappings"):
            assert memory[name]["median"] > 10, (subject, name)
        assert (memory["children_threads"]["median"] > 0) == (_has_jar()), subject


@pytest.mark.spark
@pytest.mark.tier("more")
def test_sliding_window_keeps_the_state_constant(measured: Results) -> None:
    scanned = measured.step("store", "plain", "scan")
    assert {stats["scan"]["rows"]["median"] for stats in scanned.values()} == {500 + 2 * 50}


@pytest.mark.spark
@pytest.mark.tier("more")
def test_report_is_made_of_results_alone(measured: Results, tmp_path: Path) -> None:
    report.write(measured, tmp_path)
    results_page = (tmp_path / report.RESULTS_PAGE).read_text()
    assert "### plain" in results_page
    assert "HDFS-backed / ours" in results_page
    assert "## Goals" in (tmp_path / report.GOALS_PAGE).read_text()


@pytest.mark.spark
@pytest.mark.tier("more")
def test_wrong_content_is_an_error(tmp_path: Path) -> None:
    """A store that loses its last batch fails."""
    case = store_level.case("wrong", [providers.HDFS], [store_level.load(100), {"do": "verify"}], ours=False)
    case["subjects"][0]["provider"] = "org.apache.spark.sql.statestore.benchmark.ForgetfulProvider"
    forgetful = scala_jars.compiled("forgetful", [Path(__file__).with_name("ForgetfulProvider.scala")])
    log = tmp_path / "driver.log"
    events = jvm.run([case], heap_mb=512, timeout_s=600, log=log, more_classes=[forgetful])
    found = errors({"cases": medians.by_case(events)})
    assert any("content differs from the model" in message for message in found), found


@pytest.mark.spark
@pytest.mark.tier("more")
def test_comparisons_in_one_jvm_compile_and_measure() -> None:
    small = ["keys=500", "batch=50", "batches=4", "warm=1"]
    lines = processors.table(processors.COMPARISON.measure([*small, "kinds=value"])).splitlines()
    assert len(lines) == 3, lines
    small = ["keys=500", "changed=10", "deltas=2", "operations=50", "turns=1", "warm=0", "writes=20"]
    lines = sst_files.table(sst_files.COMPARISON.measure(small)).splitlines()
    assert any(line.startswith("| compacted") for line in lines), lines
    jar = providers.jar_for(pyspark.__version__)
    for pattern in ("uniform", "prefix"):
        small = ["keys=500", "batch=50", "batches=6", "merge=2", f"pattern={pattern}"]
        lines = data_plane.table(data_plane.measure(small, other_jar=jar)).splitlines()
        assert lines[-1].startswith("| the whole batch | ") and "CPU" in lines[-1], lines


@pytest.mark.spark
@pytest.mark.tier("more")
@pytest.mark.parametrize(
    "operators",
    [
        ["aggregation"],
        pytest.param(["deduplication", "join", "outer"], marks=pytest.mark.tier("long")),
    ],
    ids=["aggregation", "others"],
)
def test_an_operator_fetches_blocks_together_with_look_ahead_alone(operators: list[str]) -> None:
    """The comparison compares rows, with Spark's store, too, and blocks that were fetched together."""
    found = look_ahead.measure(operators, keys=40_000, changed=50, request_ms=5, turns=1, apart=False)
    assert look_ahead.table(found).splitlines()[-1].startswith(f"| {operators[-1]} | ")


def test_every_scenario_is_declared_for_every_extent() -> None:
    for extent in store_level.EXTENTS.values():
        for name, scenario in STORE_LEVEL.items():
            runs = scenario(extent, True)
            subjects = {subject["name"] for run in runs for case in run.cases for subject in case["subjects"]}
            fits_in_heap = name != large_store.SCENARIO
            assert not fits_in_heap or HDFS in subjects, (extent.name, name)
            assert subjects & set(CHANGELOG), (extent.name, name)
            assert any(subject.startswith("incremental") for subject in subjects), (extent.name, name)


def _executor(count: int, unit: int) -> tuple[dict, dict]:
    """Return a case of many stores, each of which uses a multiple of `unit`, and its results."""

    def spread_of(value: float) -> dict:
        return {"median": value, "n": 1}

    memory = {
        "heap_bytes": spread_of(7 + 1 * unit * count),
        "jvm_anonymous_bytes": spread_of(70 + 2 * unit * count),
        "jvm_file_bytes": spread_of(700 + 3 * unit * count),
        "children_pss_bytes": spread_of(7000 + 4 * unit * count),
        "jvm_threads": spread_of(40),
        "children_threads": spread_of(9 + count),
        "jvm_descriptors": spread_of(50),
        "children_descriptors": spread_of(8),
    }
    segments = {"cpu_children_s": spread_of(0.25), "cpu_jvm_s": spread_of(1.0)}
    step = {"batch": {"wall_ms": spread_of(1000.0)}, "segments": segments}
    steps = {executors.BATCH: {OURS: step}, executors.MEMORY: {OURS: {"memory": memory}}}
    return {"stores": count}, steps


def test_the_share_of_a_store_is_the_growth_over_more_stores() -> None:
    cases = {executors.name(count): _executor(count, 1 << 20) for count in (10, 200)}
    specs = {name: spec for name, (spec, _) in cases.items()}
    steps = {name: made for name, (_, made) in cases.items()}
    found = Results({executors.SCENARIO: {"bench": "standard", "specs": specs, "cases": steps}})
    floor = executors.floor(found, OURS, 200)
    assert floor["total_bytes"] == 10 << 20
    assert (floor["heap_bytes"], floor["children_pss_bytes"]) == (1 << 20, 4 << 20)
    assert (floor["threads"], floor["descriptors"]) == (1, 0)
    assert executors.floor(found, OURS, 10) == {}
    assert executors.agent_share(found, OURS, 200) == 0.25
    verdicts = {
        outcome.setting: outcome.met for outcome in goals.outcomes(found) if "200 stores" in outcome.setting
    }
    assert verdicts["200 stores in an executor, memory of each"] is False
    assert verdicts["200 stores in an executor, descriptors of each"] is True
    assert verdicts["200 stores in an executor, the agent during a batch"] is True


def test_amplification_is_of_look_ups_beyond_memory() -> None:
    custom = {
        "incrementalIndexHits": 300.0,
        "incrementalIndexMisses": 100.0,
        "incrementalBaseFilters": 250.0,
        "incrementalBaseBlocks": 110.0,
    }
    segments = {"custom": custom, "batches": 2, "total": {"written_bytes": 2 * 400 * 120 * 1.5}}
    batch = {"operations": {"median": 400}, "wall_ms": {"median": 10.0, "n": 2}}
    held = {"bytes": {"median": 300.0}, "live_bytes": {"median": 200.0}}
    steps = {
        "few": {OURS: {"batch": {**batch, "wall_ms": {"median": 8.0, "n": 2}}, "segments": segments}},
        "many": {OURS: {"batch": batch, "segments": segments}},
        "many, storage": {OURS: {"storage": held}},
    }
    spec = {"steps": [{"do": "load"}, *({"do": "batches", "label": name} for name in ("few", "many"))]}
    name = large_store.SCENARIO
    found = Results({name: {"bench": "full", "specs": {name: spec}, "cases": {name: steps}}})
    few, many = large_store.amplifications(found)
    assert (few["label"], few["held"], many["label"], many["held"]) == ("few", 0, "many", 1.5)
    assert (many["misses_share"], many["filters"], many["blocks"]) == (0.25, 2.5, 1.1)
    assert many["written"] == pytest.approx(1.5)
    assert large_store.growth(found) == 1.25


def test_reasons_belong_to_existing_goals() -> None:
    settings = {outcome.setting for outcome in goals.outcomes(Results({}))}
    assert set(goals.REASONS) <= settings


def test_goals_name_figures_that_the_results_have() -> None:
    outcomes = goals.outcomes(results.load(benchmark_command.KEPT))
    unmeasured = {outcome.setting for outcome in outcomes if outcome.met is None}
    by_hand = ("200 stores", "1000 stores", "batch of 20k, all keys in a sixth", "6 GB on S3")
    assert [setting for setting in unmeasured if not setting.startswith(by_hand)] == []


def test_sections_without_a_new_measurement_stay_on_the_page(tmp_path: Path) -> None:
    """A section of half an hour and its goals outlive a run of another scenario."""
    size = "batch of 20k, all keys in a sixth of their bytes"
    rest = "JVM heap, growth from 500k to 10M keys"
    goals_before = (
        "# Goals\n\n## Goals\n\n| setting | against | aim | measured |  |\n|---|---|---|---|---|\n"
        f"| {size} | RocksDB + changelog | >= 5x | 3.1x | **missed** 1.6x short |\n"
        f"| {rest} | itself | flat (<= 10 MB) | 99 MB | met |\n"
        "| no longer a goal | itself | <= 1x | 0.5x | met |\n"
        "| native and agent memory, 500k keys | its budget | <= 1 MB | 0.5 MB | met |\n\n"
    )
    before = (
        "# Benchmarks\n\n## Age\n\nOf an age.\n\n"
        "## A store larger than its memory\n\nTook its time.\n\n## Memory\n\nOld figures.\n"
    )
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / report.RESULTS_PAGE).write_text(before)
    (tmp_path / report.GOALS_PAGE).write_text(goals_before)
    heap = {"heap_bytes": {"median": 1 << 20}, "reported_bytes": {"median": 0}}
    row = {**heap, "children_pss_bytes": {"median": 0}, "jvm_file_bytes": {"median": 0}}
    steps = {f"{keys} keys": {OURS: {"memory": row}} for keys in ("500k", "10M")}
    found = Results(
        {"memory": {"bench": "standard", "seconds": 1, "machine": _MACHINE, "cases": {"memory": steps}}}
    )
    report.write(found, tmp_path, keep_earlier=True)
    page = "".join((tmp_path / name).read_text() for name in (report.RESULTS_PAGE, report.GOALS_PAGE))
    assert f"| {size} | RocksDB + changelog | >= 5x | 3.1x | **missed** 1.6x short |" in page
    assert f"- *{size}*: {goals.REASONS[size]}" in page
    assert f"| {rest} | itself | flat (<= 10 MB) | 0 MB | met |" in page
    assert page.count("Took its time.") == 1
    assert "Old figures." not in page
    assert "no longer a goal" not in page
    assert "| native and agent memory, 500k keys | its budget | <= 256 MB | not measured |  |" in page
    assert page.count("Of an age.") == page.count("## Age") == 1
    report.write(found, tmp_path)
    assert "Took its time." not in (tmp_path / report.RESULTS_PAGE).read_text()


@pytest.mark.parametrize("is_part", [False, True])
def test_a_failed_scenario_replaces_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_part: bool
) -> None:
    monkeypatch.setattr(benchmark_command, "KEPT", tmp_path / "kept")
    wrong = {"error": [{"message": "key 7 has 3, not 4", "stack": ""}], "batch": {"wall_ms": {"median": 1}}}
    measured_ = {
        "age": {"cases": {}},
        "store": {"failed": "DriverError: it ended"},
        "merges": {"cases": {"a": {"b": {OURS: wrong}}}},
        "queries": {"queries": {"a": {OURS: {"error": ["it gave other rows"]}}}},
    }
    for name, result in measured_.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(result))
    benchmark_command._keep(list(measured_), tmp_path, is_part=is_part)
    assert [path.name for path in benchmark_command.KEPT.iterdir()] == ["age.json"]


def test_the_page_is_made_of_the_results_that_are_kept(tmp_path: Path) -> None:
    names = ("docs/benchmarks.md", report.RESULTS_PAGE, report.GOALS_PAGE)
    (tmp_path / "benchmarks").mkdir()
    for name in names[1:]:
        (tmp_path / name).write_text((benchmark_command.ROOT / name).read_text())
    report.write(results.load(benchmark_command.KEPT), tmp_path, keep_earlier=True)
    for name in names:
        again = (tmp_path / name).read_text()
        assert again == (benchmark_command.ROOT / name).read_text(), "run `python -m benchmarks --report`"


def test_the_page_of_a_user_is_short_and_its_pictures_are_kept(tmp_path: Path) -> None:
    page = (benchmark_command.ROOT / "docs/benchmarks.md").read_text()
    assert len(page.splitlines()) <= 100
    shown = set(re.findall(r"\(images/([\w-]+)\.svg\)", page))
    kept = {path.stem for path in (benchmark_command.ROOT / "docs/images").glob("*.svg")}
    assert shown == kept == set(report.draw_all(Results(), tmp_path))


def test_the_spread_of_known_numbers_is_right() -> None:
    found = medians.spread([1, 2, 3, 4, 100])
    assert (found["median"], found["q1"], found["q3"], found["min"], found["max"]) == (3, 2, 4, 1, 100)


def test_pictures_that_are_not_drawn_any_more_are_deleted(tmp_path: Path) -> None:
    for name in ("speed.svg", "no-longer-drawn.svg", "of-somebody-else.txt"):
        (tmp_path / name).touch()
    steps = {f"storage at {age}": {OURS: {"storage": {"bytes": {"median": 1.0}}}} for age in (10, 20)}
    titles = report.draw_all(Results({"age": {"cases": {"age": steps}}}), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "of-somebody-else.txt",
        "storage-over-age.svg",
    ]
    drawn = {name: title for name, title in titles.items() if title}
    assert drawn == {"storage-over-age": "Bytes in checkpoint storage over the age of the query"}


def test_services_run_the_requested_sizes() -> None:
    """The largest size has a part for each store but the HDFS-backed one, which its heap does not hold."""
    quick, standard = store_level.EXTENTS["quick"], store_level.EXTENTS["standard"]
    assert services.sizes(quick) == [1_000]
    assert services.sizes(standard) == [500_000]
    all_sizes = dataclasses.replace(standard, largest=10_000_000)
    assert services.sizes(all_sizes) == [500_000, 5_000_000, 10_000_000]
    parts = services.parts(all_sizes, True, services.HDFS_CASE)
    runs = [services.hdfs_run(part, all_sizes, "hdfs://host:1") for part in parts]
    compared = [[subject["name"] for subject in run.cases[0]["subjects"]] for run in runs]
    every = ["hdfs", "rocksdb", "rocksdb-changelog", "incremental", "incremental-lazy"]
    assert compared == [every, every, *([name] for name in every[1:])]
    shapes = [(run.cases[0]["value_bytes"], run.cases[0]["steps"][0]["to"]) for run in runs]
    assert shapes == [(100, 500_000), (100, 5_000_000), *[(580, 10_000_000)] * 4]
    (part,) = services.parts(standard, True, services.S3_CASE)
    small = services.s3_run(part, standard, {"fs.s3a.endpoint": "http://localhost:1"})
    assert [subject["name"] for subject in small.cases[0]["subjects"]] == every
    assert small.cases[0]["storage"].startswith("s3a://")
    batches = [(step["label"], step.get("ahead", False)) for step in small.cases[0]["steps"][-2:]]
    assert batches == [(services.first_batch(500_000, ahead=ahead), ahead) for ahead in (False, True)]


def test_the_local_disk_has_the_largest_size_with_and_without_local_files() -> None:
    standard = store_level.EXTENTS["standard"]
    assert services.parts(standard, True, services.LOCAL_CASE) == []
    parts = services.parts(dataclasses.replace(standard, largest=10_000_000), True, services.LOCAL_CASE)
    assert [[variant.name for variant in part.subjects] for part in parts] == [
        ["rocksdb"],
        ["rocksdb-changelog"],
        ["incremental"],
    ]
    (case,) = services.local_run(parts[0], standard).cases
    found = [(step["do"], step["local"]) for step in case["steps"] if "local" in step]
    assert found == [(do, local) for local in ("absent", "present") for do in ("restore", "recover")]


def test_only_the_requested_cases_and_stores_are_measured() -> None:
    standard = store_level.EXTENTS["standard"]
    cases = store_level.restore(standard, True)[0].cases
    names = [subject["name"] for subject in cases[0]["subjects"]]
    assert [subject["name"] for subject in standard.asked(cases)[0]["subjects"]] == names
    some = dataclasses.replace(standard, stores=("rocksdb", "incremental"))
    assert [subject["name"] for subject in some.asked(cases)[0]["subjects"]] == ["rocksdb", "incremental"]
    assert dataclasses.replace(standard, stores=("incremental-lazy",)).asked(cases) == []
    assert dataclasses.replace(standard, cases=("recovery",)).asked(cases) == []
    other = dataclasses.replace(standard, cases=(services.S3_CASE,), largest=10_000_000, stores=("hdfs",))
    assert services.parts(other, True, services.HDFS_CASE) == []
    assert [part.keys for part in services.parts(other, True, services.S3_CASE)] == [500_000, 5_000_000]


def test_a_part_that_is_measured_later_replaces_its_steps(tmp_path: Path) -> None:
    def result(commit: str, **ended_ms: float) -> dict[str, object]:
        subjects = [{"name": name, "title": name, "conf": {}} for name in ended_ms]
        steps = {name: {"recover": {"end_ms": medians.spread([ms])}} for name, ms in ended_ms.items()}
        return {
            "scenario": "services",
            "bench": "standard",
            "machine": {**_MACHINE, "commit": commit, "time": f"then {commit}"},
            "seconds": 1.0,
            "specs": {services.S3_CASE: {"subjects": subjects}},
            "cases": {services.S3_CASE: {"batch": steps}},
        }

    first = result("a", hdfs=9.0, incremental=3.0)
    joined = results.joined(first, result("b", incremental=2.0, rocksdb=8.0))
    found = Results({"services": joined}).step("services", services.S3_CASE, "batch")
    shown = {name: stats["recover"]["end_ms"]["median"] for name, stats in found.items()}
    assert shown == {"hdfs": 9.0, "incremental": 2.0, "rocksdb": 8.0}
    assert [stats["name"] for stats in joined["specs"][services.S3_CASE]["subjects"]] == list(shown)
    assert first == result("a", hdfs=9.0, incremental=3.0), "the argument was changed"
    (tmp_path / "services.json").write_text(json.dumps(joined))
    report.write(results.load(tmp_path), tmp_path)
    page = (tmp_path / report.RESULTS_PAGE).read_text()
    rows = dict(re.findall(r"(?m)^\| (services.*?) \|.*\| (\w+ \| then \w+) \|", page))
    assert rows == {
        "services": "a | then a",
        "services: recovery, S3 (incremental, rocksdb)": "b | then b",
    }
    assert "in the S3 service of `moto`" in page
    delayed = s3_service.client_properties("http://127.0.0.1:1", 20, 100 << 20)
    joined["specs"][services.S3_CASE]["hadoop_conf"] = delayed
    report.write(Results({"services": joined}), tmp_path)
    assert "and of S3Proxy ask" in (tmp_path / report.RESULTS_PAGE).read_text()
