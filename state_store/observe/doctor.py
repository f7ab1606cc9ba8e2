"""The doctor: one look at a query and the verdict on it."""

from __future__ import annotations

from dataclasses import dataclass

from state_store.core.runtime import SYSTEM, Runtime
from state_store.core.settings.option import DURATION
from state_store.data.query.arguments import Location, check_text, checked_location
from state_store.data.query.query import not_committed
from state_store.errors import MissingError, OptionError, StateStoreError, as_store_error
from state_store.observe.look import Look, Looker
from state_store.observe.rest_answers import Failure, Verdict
from state_store.observe.verdict import judge, totals_of


@dataclass(frozen=True, repr=False)
class Examination:
    """The result of an examination.

    Attributes:
        verdict: the findings, worst first.
        look: the figures; None if the checkpoint could not be read.
    """

    verdict: Verdict
    look: Look | None

    def __repr__(self) -> str:
        return f"Examination({self.verdict.severity}: {self.verdict.sentence})"


def doctor(checkpoint: Location, *, restore_objective: str | None = None) -> Examination:
    """Say what is wrong with a query's checkpoints, worst first, and what to do.

    Reads listings and archives of snapshots, no state and no rows. The query may run meanwhile.

    Args:
        checkpoint: the query's checkpoint directory, a path or a URI.
        restore_objective: the longest acceptable restore, such as `10s`; `0`: any time is. Default:
            the query's `restoreObjective`, as its newest merge found it.

    Raises:
        MissingError: no stateful query has committed a batch there.
        OptionError: an argument is wrong, or another provider keeps the query's state.
    """
    location = checked_location(checkpoint)
    return examine(location, objective_ms=objective_ms(restore_objective))


def objective_ms(restore_objective: str | None) -> int | None:
    """Return an objective in milliseconds, None for the query's own. Raise OptionError if it is wrong."""
    return None if restore_objective is None else duration_ms(restore_objective, "restoreObjective")


def duration_ms(text: str, option: str) -> int:
    """Return a duration such as `10s` in milliseconds. Raise OptionError, which names the option."""
    try:
        return int(DURATION.parse(check_text(option, text, "'10s'")))
    except ValueError as error:
        raise OptionError(f"'{text}' is not a duration such as 10s: {error}", option=option) from None


def examine(checkpoint: str, *, objective_ms: int | None = None, runtime: Runtime = SYSTEM) -> Examination:
    """Look at a query's checkpoint once, and say what is wrong with it.

    Reads listings and archives of snapshots, no state and no rows. The query may run meanwhile.

    Args:
        checkpoint: the checkpoint directory, a path or URI.
        objective_ms: the query's restoreObjective, milliseconds; 0: none; None: as its newest merge found it,
            or the default.
        runtime: the clock.

    Raises:
        MissingError: no stateful query has committed a batch there.
        OptionError: another provider keeps the query's state.
    """
    looker = Looker(checkpoint, objective_ms=objective_ms, runtime=runtime)
    try:
        look = looker.look()
    except (MissingError, OptionError):
        raise
    except (StateStoreError, OSError) as error:
        failure = Failure(**as_store_error(error).to_json())
        verdict = judge(totals_of([], unreadable=True), [], runtime.wall_ms(), error=failure)
        return Examination(verdict, None)
    finally:
        looker.close()
    if look.batch is None:
        raise not_committed(checkpoint)
    verdict = judge(
        look.totals(),
        look.stores,
        runtime.wall_ms(),
        start=look.start_failure,
        verify=look.verify_failure,
        batch=look.batch,
    )
    return Examination(verdict, look)
