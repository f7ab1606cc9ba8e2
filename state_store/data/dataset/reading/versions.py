"""The choice of a version of a query's state: by its number, by its batch, or by time."""

from __future__ import annotations

from collections.abc import Mapping

from state_store.core.checkpoint.lineage import Lineages, Listing, describe_restorable
from state_store.core.checkpoint.names import VersionId
from state_store.data.dataset.moments import Moment, as_moment, format_moment, milliseconds_of
from state_store.data.query import Query
from state_store.data.query.arguments import check_number
from state_store.errors import MissingError, OptionError


def version_number(
    query: Query, version: int | None = None, batch: int | None = None, at: Moment | None = None
) -> int:
    """Return the number of the chosen version; the default is the one that Spark committed last.

    Args:
        query: the query.
        version: the number itself.
        batch: the batch that made the version.
        at: a moment, without a zone in the local one; the version is the newest then.

    Raises:
        OptionError: several arguments are given, or one has a wrong type.
        MissingError: Spark has committed no such version.
    """
    if sum(given is not None for given in (version, batch, at)) > 1:
        raise OptionError(
            "a version is given by its number, by its batch or by a time, not by several of them"
        )
    for name, given in (("version", version), ("batch", batch)):
        if given is not None:
            check_number(name, given)
    newest = query.newest_batch()
    if at is not None:
        batch = _batch_at(query, at)
    number = newest + 1 if version is None and batch is None else version if batch is None else batch + 1
    assert number is not None
    check_committed(query, number, newest)
    return number


def check_committed(query: Query, number: int, newest: int) -> None:
    """Raise MissingError if there is no version of a number; `newest` is the batch committed last."""
    if not 1 <= number <= newest + 1:
        yet = " yet" if number > newest else ""
        raise MissingError(
            f"there is no version {number}{yet}: of {query.location} Spark has committed batch {newest} "
            f"last, which is version {newest + 1}"
        )


def identified(listing: Listing, number: int, newest: VersionId, where: str) -> VersionId:
    """Return the version with that number on the lineage of `newest`, which Spark has committed.

    Raises:
        MissingError: the store does not have it any more; the message lists the versions that it has. If
            all of these are older, the message names the file that is missing.
    """
    if newest.checkpoint_id is None:
        newest = listing.attempts.resolve(newest.number) or newest
    lineages = Lineages(listing.deltas, listing.snapshots)
    version = next((earlier for earlier in lineages.history(newest) if earlier.number == number), None)
    if version is None and newest.checkpoint_id is None:
        version = VersionId(number, None)
    restorable = lineages.restorable()
    if version is None or version not in restorable:
        if number == newest.number and all(other.number < number for other in restorable):
            _check_files(lineages, newest, where)  # clean-ups remove the oldest versions
        raise MissingError(
            f"version {number} is not in {where} any more, or not yet: {describe_restorable(restorable)}"
        )
    return version


def _check_files(lineages: Lineages, version: VersionId, where: str) -> None:
    """Raise MissingError, which names the store and the file, if a file of a version is not there."""
    try:
        lineages.plan(version)
    except MissingError as error:
        raise MissingError(f"files of {where} are missing: {error.message}", file=error.file) from error


def _batch_at(query: Query, at: Moment) -> int:
    at_ms = milliseconds_of(as_moment(at))
    times: Mapping[int, int] = query.logs.end_times_ms()
    before = [batch for batch, time_ms in times.items() if time_ms <= at_ms]
    if not before:
        first = format_moment(min(times.values()))
        raise MissingError(
            f"the oldest batch that {query.location} still has was committed at {first}, after "
            f"{format_moment(at_ms)}"
        )
    return max(before)
