"""Files of delegation tokens, without a cluster: which token is sent to which NameNode."""

from __future__ import annotations

from pathlib import Path

import pytest
from minihdfs import write_configuration

from state_store.core.storage.webhdfs import TOKEN_FILE, delegation_token, parse_tokens
from state_store.errors import OptionError

FIRST, SECOND = "http://192.0.2.1:9870", "http://192.0.2.2:9870"


def file_of(path: Path, services: list[str], kind: str = "HDFS_DELEGATION_TOKEN") -> dict[str, str]:
    """Write a file with a token for each service; return the environment that names it."""
    content = b"HDTS\0" + bytes([len(services)])
    for service in services:
        for field in (b"alias", b"id of " + service.encode(), b"secret", kind.encode(), service.encode()):
            content += bytes([len(field)]) + field
    path.write_bytes(content + b"\0")
    return {TOKEN_FILE: str(path)}


def test_each_name_node_gets_its_own_token(tmp_path: Path) -> None:
    environment = file_of(tmp_path / "tokens", ["192.0.2.1:8020", "192.0.2.2:8020"])
    first, second = (token.to_parameter() for token in parse_tokens((tmp_path / "tokens").read_bytes()))
    assert delegation_token([FIRST], environment) == first
    assert delegation_token([SECOND], environment) == second


def test_the_token_of_a_name_service_goes_to_its_name_nodes_alone(tmp_path: Path) -> None:
    properties = {
        "dfs.ha.namenodes.ours": "a,b",
        "dfs.namenode.http-address.ours.a": "192.0.2.1:9870",
        "dfs.namenode.http-address.ours.b": "192.0.2.3:9870",
    }
    write_configuration(tmp_path / "hdfs-site.xml", properties)
    environment = file_of(tmp_path / "tokens", ["ha-hdfs:ours"])
    with pytest.raises(OptionError, match="HADOOP_CONF_DIR"):
        delegation_token([FIRST], environment)
    environment["HADOOP_CONF_DIR"] = str(tmp_path)
    assert delegation_token([FIRST], environment)
    with pytest.raises(OptionError, match=r"none for http://192\.0\.2\.2:9870"):
        delegation_token([SECOND], environment)


def test_tokens_for_something_else_are_no_tokens_for_hdfs(tmp_path: Path) -> None:
    assert delegation_token([FIRST], file_of(tmp_path / "tokens", ["192.0.2.1:8020"], "YARN_AM")) is None
