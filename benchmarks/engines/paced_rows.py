"""Send the rows of a job to a socket or to Kafka, all at once or at a pace, and note when each was sent.

A row on the socket is a line with its number. A message in Kafka has the key, the value as JSON, and the
moment of the row; this needs the environment `quix`.

With a pace, row 0 goes first, and the others begin when the job has given its result: `--after` names the
file that then appears. Every millisecond the rows go out that are due.
"""

from __future__ import annotations

import argparse
import json
import socket
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workloads import SESSIONS, add_rows, counter_row, session_row

_TICK_S = 0.001
_FIRST_RESULT_S = 600


def to_socket(listening: socket.socket) -> Callable[[range], None]:
    """Return what sends rows to the engine that connects."""
    connection, _ = listening.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(numbers: range) -> None:
        connection.sendall("".join(f"{number}\n" for number in numbers).encode())

    return send


def to_kafka(broker: str, topic: str, workload: str, keys: int) -> tuple[Callable[[range], None], Any]:
    """Make a topic with one partition; return what sends rows there, and the producer."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    config = {"retention.ms": "-1"}  # by moments of events, which are long ago
    admin = AdminClient({"bootstrap.servers": broker})
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result()
    producer = Producer({"bootstrap.servers": broker, "linger.ms": 0, "queue.buffering.max.messages": 10**6})

    def send(numbers: range) -> None:
        for number in numbers:
            if workload != SESSIONS:
                key, value = counter_row(number, keys)
                moment_ms = {}
            else:
                key, value, moment = session_row(number, keys)
                moment_ms = {"timestamp": moment}
            while True:
                try:
                    producer.produce(topic, json.dumps({"v": value}), str(key), **moment_ms)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.poll(0)

    return send, producer


def send_at_pace(send: Callable[[range], None], rows: int, rate: int, after: Path) -> array[float]:
    """Send rows when they are due; return the moment at which each was sent."""
    sent_s = array("d", [time.monotonic()])
    send(range(1))
    deadline = time.monotonic() + _FIRST_RESULT_S
    while not after.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the first row had no result after {_FIRST_RESULT_S} s")
        time.sleep(_TICK_S)
    begin = time.monotonic()
    while len(sent_s) < rows:
        now = time.monotonic()
        due = range(len(sent_s), min(rows, 1 + int((now - begin) * rate)))
        if due:
            send(due)
            sent_s.extend([now] * len(due))
        time.sleep(_TICK_S)
    return sent_s


def main() -> None:
    """Send what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_rows(parser)
    parser.add_argument("--rate", type=int, default=0, help="rows a second (default: all at once)")
    parser.add_argument("--after", type=Path, help="file that says that the first row has its result")
    parser.add_argument("--sent", type=Path, help="file for the moments at which rows were sent")
    parser.add_argument("--listening", type=int, help="descriptor of a listening socket")
    parser.add_argument("--broker")
    parser.add_argument("--topic")
    asked = parser.parse_args()
    producer = None
    if asked.broker:
        send, producer = to_kafka(asked.broker, asked.topic, asked.workload, asked.keys)
        if asked.sent:
            asked.sent.touch()  # the topic is there
    else:
        send = to_socket(socket.socket(fileno=asked.listening))
    if asked.rate:
        asked.sent.write_bytes(send_at_pace(send, asked.rows, asked.rate, asked.after).tobytes())
    else:
        send(range(asked.rows))
    if producer is not None:
        producer.flush()


if __name__ == "__main__":
    main()
