"""The state store as a plain embedded store: no Spark, no JVM, the same checkpoints.

    python examples/embedded_store.py /tmp/counts

Counts words, one version for each line of a text; run it again and it goes on from the newest version.
"""

from __future__ import annotations

import sys

from state_store.data.embedded import EmbeddedStore

LINES = ["the fox and the dog", "the dog sleeps", "and the fox"]


def main(location: str) -> None:
    with EmbeddedStore.open(location) as store:
        store.create_family("lines")
        for line in LINES:
            for word in line.split():
                count = int(store.get(word.encode()) or 0)
                store.put(word.encode(), str(count + 1).encode())
            store.put(store.version.number.to_bytes(8, "big"), line.encode(), "lines")
            print(f"version {store.commit().number}: {line}")
        print(store.to_arrow().to_pylist())


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) == 2 else sys.exit(__doc__))
