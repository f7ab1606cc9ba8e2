"""Chromium without a screen, by its own protocol: opens pages, clicks, evaluates scripts, takes pictures."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import websocket
from tools import tool
from waiting import PATIENCE_S

_HOMES = ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")
"""Variables with directories where Chromium and its libraries keep settings, whatever the profile is."""


class Browser:
    """A page in a Chromium of its own.

    Attributes:
        problems: errors and warnings of the console, and scripts or styles that the page's policy refused.
        requested: addresses that the page asked for.
    """

    def __init__(self) -> None:
        program = tool("chromium")
        self._profile = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
        flags += ["--disable-dev-shm-usage", "--disable-background-networking", "--force-color-profile=srgb"]
        self._process = subprocess.Popen(
            [
                program,
                *flags,
                "--remote-debugging-port=0",
                f"--user-data-dir={self._profile.name}",
                "about:blank",
            ],
            env={**os.environ, **dict.fromkeys(_HOMES, self._profile.name)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        port = self._port()
        (page,) = [
            each for each in httpx.get(f"http://127.0.0.1:{port}/json/list").json() if each["type"] == "page"
        ]
        self._socket = websocket.create_connection(
            page["webSocketDebuggerUrl"], timeout=60, suppress_origin=True, enable_multithread=False
        )
        self._number = 0
        self.problems: list[str] = []
        self.requested: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _port(self) -> int:
        path = Path(self._profile.name) / "DevToolsActivePort"
        for _ in range(600):
            if path.exists() and path.read_text().strip():
                return int(path.read_text().splitlines()[0])
            assert self._process.poll() is None, "chromium ended"
            time.sleep(0.1)
        raise AssertionError("chromium did not start")

    def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the protocol and return its result."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("id") == self._number:
                assert "error" not in message, message
                return message["result"]
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        method, given = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requested.append(given["request"]["url"])
        elif method == "Log.entryAdded" and given["entry"]["level"] in ("error", "warning"):
            self.problems.append(f"{given['entry']['text']} {given['entry'].get('url', '')}")
        elif method == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(given["exceptionDetails"])[:500])
        elif method == "Runtime.consoleAPICalled" and given["type"] in ("error", "warning"):
            self.problems.append(str(given["args"])[:500])

    def size(self, wide: int, high: int, *, dark: bool = False, phone: bool = False) -> None:
        """Set the size of the window, the colours that its user prefers, and whether it is a telephone."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=wide, height=high, deviceScaleFactor=1, mobile=phone
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        """Open an address and wait until the page shows figures."""
        self.call("Page.navigate", url=url)
        self.wait(
            "document.querySelector('#state-store') && document.querySelector('#state-store').dataset.ready"
        )

    def evaluate(self, script: str) -> Any:
        """Return the value of an expression in the page; a promise is awaited."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, script: str) -> Any:
        """Wait until an expression is true, and return its value."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            value = self.evaluate(script)
            if value:
                return value
            time.sleep(0.1)
        raise AssertionError(f"never true: {script}; problems: {self.problems}")

    def click(self, selector: str) -> None:
        """Click with the mouse on the middle of an element."""
        place = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); "
            f"e.scrollIntoView({{block: 'center'}});"
            " const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1
            )

    def press(self, key: str, code: int = 0) -> None:
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text
            )

    def picture(self, path: Path, *, high: int | None = None) -> None:
        """Write a picture of the page from its top, as PNG.

        Args:
            path: the file.
            high: pixels of height; None: the whole page.
        """
        wide, full = self.evaluate("[innerWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": wide, "height": min(full, high or full), "scale": 1}
        made = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(made["data"]))

    def close(self) -> None:
        """End Chromium."""
        self._socket.close()
        self._process.terminate()
        self._process.wait(20)
        self._profile.cleanup()
