"""A running service and a client of it, for tests."""

from __future__ import annotations

import threading
import time

import httpx

from state_store.observe.serving.program import Program, Settings


class Served:
    """A running service and a client of it."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.url = program.url
        self._thread = threading.Thread(target=program.run, daemon=True)
        self._thread.start()
        for watched in program.watched:
            assert watched.wait_for_look(30)
        self.http = httpx.Client(base_url=self.url, timeout=30)
        for _ in range(100):
            try:
                self.http.get("healthz")
                return
            except httpx.TransportError:
                time.sleep(0.05)
        raise AssertionError("the service does not answer")

    def post(self, body: object, query: str = "flights", **headers: str) -> httpx.Response:
        """Request a full checkpoint."""
        return self.http.post(f"v1/queries/{query}/checkpoints", json=body, headers=headers)

    def ended(self, request_id: str, query: str = "flights") -> dict:
        """Return a request's answer after it has ended."""
        for _ in range(600):
            answer = self.http.get(f"v1/queries/{query}/checkpoints/triggers/{request_id}").json()
            if answer["status"]["id"] == "COMPLETED":
                return answer
            time.sleep(0.05)
        raise AssertionError(answer)

    def stop(self) -> None:
        """End the service."""
        self.http.close()
        self.program.stop()
        self._thread.join(30)
        assert not self._thread.is_alive()


def serving(*locations: str, **settings: object) -> Served:
    """Start a service on a free port."""
    return Served(Program(locations, Settings(**{"port": 0, **settings})))  # type: ignore[arg-type]
