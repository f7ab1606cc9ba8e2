"""WebHDFS endpoints of the NameNodes of an `hdfs://` URI, from the configuration at HADOOP_CONF_DIR.

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
    """Return `http(s)://host:port` of each NameNode behind `authority`.

    Without a configuration that is port 9870 of the host.

    Args:
        authority: `host[:port]`, a name service, or empty: that of `fs.defaultFS`.
        environment: has HADOOP_CONF_DIR.

    Raises:
        OptionError: If the configuration cannot be read or names observers, or if there is no authority.
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
        endpoints = [properties.get(f"{key}.{authority}.{node.strip()}") for node in nodes.split(",")]
        addresses = [address for address in endpoints if address]
    else:
        configured = properties.get(f"{key}.{authority}") or properties.get(key)
        addresses = [configured] if configured else []
    return [f"{scheme}://{_reachable(address, authority)}" for address in addresses] or [
        f"{scheme}://{authority.partition(':')[0]}:{_DEFAULT_PORTS[scheme]}"
    ]


def read_properties(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of `core-site.xml` and `hdfs-site.xml` in HADOOP_CONF_DIR, if that is set."""
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
    """Return the address, with the URI's host in place of a wildcard."""
    host, _, port = address.rpartition(":")
    return f"{authority.partition(':')[0]}:{port}" if host in ("0.0.0.0", "") else address
