"""Arguments that the commands about a query share."""

from __future__ import annotations

import argparse

from state_store.cli.query import Filter


def add_query_arguments(parser: argparse.ArgumentParser) -> None:
    """The checkpoint directory, which stores of it are meant, and the form of the output."""
    parser.add_argument(
        "checkpoint",
        help="the query's checkpointLocation: a path or a file:, hdfs:, webhdfs:, s3:, gs: or abfs: URI",
    )
    parser.add_argument("--operator", type=int, metavar="N", help="only the stores of this stateful operator")
    parser.add_argument("--partition", type=int, metavar="N", help="only the stores of this partition")
    parser.add_argument("--name", help="only the stores of this name (joins have several)")
    add_json(parser)


def add_json(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON for programs instead of tables")


def chosen(arguments: argparse.Namespace) -> Filter:
    """The filter that the arguments stand for."""
    return Filter(arguments.operator, arguments.partition, arguments.name)
