"""Where the NameNodes of an `hdfs://` URI serve WebHDFS, from the Hadoop configuration at HADOOP_CONF_DIR.

Property names are those of Hadoop's `hdfs-default.xml`.
"""

from __future__ import annotations

import os
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path

from state_store.errors import OptionError

_DEFAULT_PORTS = {"http": 9870, "https": 9871}


def webhdfs_endpoints(authority: str, environment: Mapping[str, str] = os.environ) -> list[str]:
    """`http(s)://host:port` of each NameNode behind `authority` (`host[:port]`, or a name service).

    Without a configuration that says more: port 9870 of the URI's host. Raises OptionError when the
    configuration cannot be read or names observers, or when there is no authority and no default.
    """
    properties = read_properties(environment)
    scheme = "https" if properties.get("dfs.http.policy", "").upper() == "HTTPS_ONLY" else "http"
    if not authority:
        authority = properties.get("fs.defaultFS", "").removeprefix("hdfs://").rstrip("/")
    if not authority:
        raise OptionError(
            "an hdfs URI without a host needs fs.defaultFS in HADOOP_CONF_DIR", option="HADOOP_CONF_DIR"
        )
    if "ObserverRead" in properties.get(f"dfs.client.failover.proxy.provider.{authority}", ""):
        raise OptionError(
            f"'{authority}' is read from observers, whose answers may be old: name the active one, as in "
            "webhdfs://host:9870/path",
            option="HADOOP_CONF_DIR",
        )
    nodes = properties.get(f"dfs.ha.namenodes.{authority}")
    key = f"dfs.namenode.{scheme}-address"
    if nodes:
        found = [properties.get(f"{key}.{authority}.{node.strip()}") for node in nodes.split(",")]
        addresses = [address for address in found if address]
    else:
        configured = properties.get(f"{key}.{authority}") or properties.get(key)
        addresses = [configured] if configured else []
    return [f"{scheme}://{_reachable(address, authority)}" for address in addresses] or [
        f"{scheme}://{authority.partition(':')[0]}:{_DEFAULT_PORTS[scheme]}"
    ]


def read_properties(environment: Mapping[str, str]) -> dict[str, str]:
    """Properties of `core-site.xml` and `hdfs-site.xml` in HADOOP_CONF_DIR; none when it is not set."""
    directory = environment.get("HADOOP_CONF_DIR")
    properties: dict[str, str] = {}
    for name in ("core-site.xml", "hdfs-site.xml"):
        path = Path(directory, name) if directory else None
        if path is not None and path.is_file():
            properties.update(_read(path))
    return properties


def _read(path: Path) -> dict[str, str]:
    try:
        root = ElementTree.parse(path).getroot()
    except (ElementTree.ParseError, OSError) as error:
        raise OptionError(
            f"cannot read '{path}': {error}", file=str(path), option="HADOOP_CONF_DIR"
        ) from error
    pairs = ((item.findtext("name"), item.findtext("value")) for item in root.iter("property"))
    return {name.strip(): (value or "").strip() for name, value in pairs if name}


def _reachable(address: str, authority: str) -> str:
    """The address, with the URI's host in place of the wildcard that a NameNode may listen on."""
    host, _, port = address.rpartition(":")
    return f"{authority.partition(':')[0]}:{port}" if host in ("0.0.0.0", "") else address
