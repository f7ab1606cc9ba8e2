"""Observation of running and stopped queries: figures, verdict, metrics, REST API and page.

Every answer (`rest_answers`), metric (`metrics`), rule (`verdict`) and endpoint (`documents`) is declared
once. The JSON schema, the OpenAPI document, the alert rules and three pages of the documentation are written
from these declarations, and the tab in Spark's UI reads them from the jar.

`look` reads a query's files, of which `figures` makes figures; `verdict` judges these. `look.doctor` does
that once. `serve` does it again and again: `program` runs the server, `web` takes requests, `service` answers
them, and `operations` makes full checkpoints on request.
"""
