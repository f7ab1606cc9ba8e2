"""`state_store.serve`: a page, a REST API and metrics of queries, until it is interrupted."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from state_store.data.query.arguments import check_flag, check_name, check_number, check_text
from state_store.errors import OptionError
from state_store.observe.look import duration_ms, objective_ms

_EXTRA = ("starlette", "uvicorn", "prometheus_client", "h11", "anyio")

Ready = Callable[[str, int], object]
"""Called with the address and the number of queries when the service listens, and a signal can end it."""


def serve(
    checkpoints: str | Sequence[str],
    *,
    host: str = "127.0.0.1",
    port: int = 8190,
    every: str | None = None,
    restore_objective: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    allow_host: Sequence[str] = (),
    tls_certificate: str | os.PathLike[str] | None = None,
    tls_key: str | os.PathLike[str] | None = None,
    read_only: bool = False,
    stores: int = 2,
    documentation: str | None = None,
    ready: Ready | None = None,
) -> None:
    """Serve a page, a REST API and Prometheus metrics of queries, running or stopped, until Ctrl-C.

    Needs no Spark: it reads listings and archives in checkpoint storage. Call it in the main thread, which
    gets the signals.

    Args:
        checkpoints: a checkpoint directory, or several; `NAME=DIR` gives a query its name in addresses.
        host: the address to listen on.
        port: the port to listen on; 0: a free one.
        every: the least time between two looks at a query, such as `5s`, at least `1s`. Default: `5s` for
            local storage, `30s` for other storage, whose requests cost money, and more above 200 stores.
        restore_objective: the longest acceptable restore, such as `10s`; `0`: any time is. Default:
            each query's `restoreObjective`, as its newest merge found it.
        token_file: a file with a token that requests need; its owner alone may read it.
        allow_host: further host names that requests may be for.
        tls_certificate: the file of a certificate chain, PEM.
        tls_key: the file of its key, PEM.
        read_only: refuse requests for full checkpoints.
        stores: stores of which full checkpoints are made at a time.
        documentation: the address of the documentation, for links on the page.
        ready: called with the address and the number of queries when the service listens.

    Raises:
        OptionError: an argument is wrong, or a package of the extra `serve` is missing.
        ConflictError: another program has the port.
    """
    locations = [checkpoints] if isinstance(checkpoints, str) else checkpoints
    _check_texts("checkpoints", locations)
    _check_texts("allow_host", allow_host)
    check_text("host", host, "'127.0.0.1'")
    check_number("port", port, minimum=0, maximum=65535)
    check_number("stores", stores, minimum=1, maximum=1024)
    check_name("documentation", documentation)
    check_flag("read_only", read_only)
    files = [
        _file(name, path)
        for name, path in (
            ("token_file", token_file),
            ("tls_certificate", tls_certificate),
            ("tls_key", tls_key),
        )
    ]
    every_s = None if every is None else duration_ms(every, "every") / 1000
    if every_s is not None and every_s < 1:
        raise OptionError("every is 1s or more", option="every")
    objective = objective_ms(restore_objective)
    try:
        program = importlib.import_module("state_store.observe.program")
    except ModuleNotFoundError as error:
        lacking = (error.name or "").partition(".")[0]
        if lacking not in _EXTRA:
            raise
        raise OptionError(
            f"serve needs the Python package '{lacking}': pip install {lacking} "
            "(the extra 'serve' of incremental-state-store has it)"
        ) from None
    token, certificate, key = files
    settings = program.Settings(
        host=host,
        port=port,
        every_s=every_s,
        objective_ms=objective,
        token=None if token is None else program.token_from(token),
        allowed_hosts=tuple(allow_host),
        certificate=certificate,
        key=key,
        read_only=read_only,
        stores=stores,
        documentation=documentation,
    )
    service = program.Program(locations, settings)
    service.run(None if ready is None else partial(ready, service.url, len(service.watched)))


def _check_texts(name: str, values: object) -> None:
    """Raise OptionError if values are not a sequence of texts that have characters."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        raise OptionError(f"{name} is a list of texts, not {values!r}", option=name)
    for value in values:
        if not check_text(name, value, "'/data/checkpoint'").strip():
            raise OptionError(f"{name} has an empty text", option=name)


def _file(name: str, path: object) -> Path | None:
    """Return the path of a file; None if there is none. Raise OptionError for what is not a path."""
    if path is None:
        return None
    if not isinstance(path, (str, os.PathLike)):
        raise OptionError(f"{name} is a path, not {path!r}", option=name)
    return Path(path)
