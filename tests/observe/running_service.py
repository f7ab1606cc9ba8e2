"""A running service and a client of it, for tests."""

from __future__ import annotations

import threading

import httpx
from waiting import PATIENCE_S, awaited

from state_store.observe.program import Program, Settings


class Served:
    """A running service and a client of it."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.url = program.url
        is_ready = threading.Event()
        self._thread = threading.Thread(target=program.run, args=(is_ready.set,), daemon=True)
        self._thread.start()
        for watched in program.watched:
            assert watched.wait_for_look(PATIENCE_S)
        assert is_ready.wait(PATIENCE_S)
        self.http = httpx.Client(base_url=self.url, timeout=PATIENCE_S)

    def post(self, body: object, query: str = "flights", **headers: str) -> httpx.Response:
        """Request a full checkpoint."""
        return self.http.post(f"v1/queries/{query}/checkpoints", json=body, headers=headers)

    def ended(self, request_id: str, query: str = "flights") -> dict:
        """Return a request's answer after it has ended."""

        def completed() -> dict | None:
            answer = self.http.get(f"v1/queries/{query}/checkpoints/triggers/{request_id}").json()
            return answer if answer["status"]["id"] == "COMPLETED" else None

        answer = awaited(completed, f"{request_id} has ended")
        assert answer is not None
        return answer

    def stop(self) -> None:
        """End the service."""
        self.http.close()
        self.program.stop()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


def serving(*locations: str, **settings: object) -> Served:
    """Start a service on a free port."""
    return Served(Program(locations, Settings(**{"port": 0, **settings})))  # type: ignore[arg-type]
