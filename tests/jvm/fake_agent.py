"""An agent that misbehaves, for tests of the JVM's side.

It answers the handshake and `ping` as the agent does, and never answers `open`.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from state_store.core.storage.hadoop import read_frame, write_frame


def main() -> None:
    start = json.loads(sys.stdin.readline())
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(start["socket"])
    listener.listen(16)
    print(json.dumps({"ready": True, "pid": os.getpid(), "version": "0", "rocksdb_version": "0"}), flush=True)
    threading.Thread(target=_end_with_jvm, daemon=True).start()
    while True:
        channel, _ = listener.accept()
        threading.Thread(target=_serve, args=(channel,), daemon=True).start()


def _end_with_jvm() -> None:
    sys.stdin.read()
    os._exit(0)


def _serve(channel: socket.socket) -> None:
    while (frame := read_frame(channel)) is not None:
        operation = frame[0].get("op")
        if operation == "events":
            time.sleep(1)
        if operation != "open":
            write_frame(channel, {"ok": {"events": []} if operation == "events" else {}})


if __name__ == "__main__":
    main()
