"""Observation of running and stopped queries: their model, verdict, metrics, REST API and page.

`model` declares every answer, metric, finding and endpoint once. The JSON schema, the OpenAPI document, the
alert rules, the dashboard and two pages of the documentation are written from these declarations, and the tab
in Spark's UI reads them from the jar.
"""
