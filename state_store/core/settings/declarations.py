"""Declarations that both planes share, as a document that the jar carries and the data plane reads.

The options with their defaults and units, the reserved names of the format, and the kinds of merges are
declared in Python. The build packs `document` into the jar, where `settings/Declarations.scala` reads it. A
new option needs nothing here.
"""

from __future__ import annotations

import json

from state_store.core.checkpoint.names import EMPTY_PARENT
from state_store.core.checkpoint.stored_documents import FULL, INCREMENTAL, INGEST, META_KEY, RESERVED_FAMILY
from state_store.core.settings.option import PREFIX
from state_store.core.settings.option_types import BYTE_UNITS, BYTES, DURATION, DURATION_UNITS_MS
from state_store.core.settings.options import OPTIONS

RESOURCE = "incremental-state-store-declarations.json"


def document() -> bytes:
    """Return the document as JSON: the same bytes for the same declarations."""
    options = {
        option.name: {
            "type": option.type.name,
            "unit": option.unit,
            "default": option.default,
            "least": option.type.least,
            "scope": option.scope,
            "meaning": option.doc,
        }
        for option in OPTIONS
    }
    fields = {
        "prefix": PREFIX,
        "meta_key": META_KEY.hex(),
        "reserved_family": RESERVED_FAMILY,
        "empty_parent": EMPTY_PARENT,
        "merge_kinds": {"ingest": INGEST, "incremental": INCREMENTAL, "full": FULL},
        "units": {BYTES.name: BYTE_UNITS, DURATION.name: DURATION_UNITS_MS},
        "options": options,
    }
    return (json.dumps(fields, indent=1) + "\n").encode()
