"""A real HDFS that asks for Kerberos: Hadoop's mini cluster and mini KDC in one JVM, on the loopback."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import maven_jars
from called_jvm import called_jvm
from minihdfs import write_configuration
from waiting import awaited

REALM = "EXAMPLE.COM"
SERVER, WEB = f"hdfs/localhost@{REALM}", f"HTTP/localhost@{REALM}"
PRINCIPALS = ("hdfs/localhost", "HTTP/localhost", "alice", "gateway")
"""The servers, a user, and a service that may act for users. One keytab has the keys of all."""

_RENEWER = "hdfs"
_RENEWED_EVERY_S = 2.0

_POM = """
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tests</groupId><artifactId>kdc</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>org.apache.hadoop</groupId><artifactId>hadoop-minikdc</artifactId><version>{hadoop}</version>
  </dependency></dependencies>
</project>
"""


@dataclass(frozen=True)
class SecureCluster:
    """A running cluster.

    `web` is the `host:port` of WebHDFS, `configuration` a directory for HADOOP_CONF_DIR, `krb5` a file for
    KRB5_CONFIG. Directories below `/user` belong to the user of that name.
    """

    web: str
    configuration: Path
    krb5: Path
    keytab: Path
    jvm: Any
    mini: Any

    def keytab_of(self, name: str, directory: Path) -> dict[str, str]:
        """Return the variables with which a process is that user, and has no ticket yet."""
        own = directory / f"{name}.keytab"
        jvm_name = self.jvm.org.apache.kerby.kerberos.kerb.keytab.Keytab
        everyone = jvm_name.loadKeytab(self.jvm.java.io.File(str(self.keytab)))
        principal = next(p for p in everyone.getPrincipals() if str(p.getName()) == f"{name}@{REALM}")
        only = jvm_name()
        only.addKeytabEntries(everyone.getKeytabEntries(principal))
        only.store(self.jvm.java.io.File(str(own)))
        return {
            "KRB5_CONFIG": str(self.krb5),
            "KRB5_CLIENT_KTNAME": f"FILE:{own}",
            "KRB5CCNAME": f"FILE:{directory}/{name}.cache",
        }

    def write_tokens(self, user: str, path: Path) -> Any:
        """Write a file with a new delegation token of that user, as YARN gives it to a container.

        Returns the token. The user has a principal.
        """
        hadoop = self.jvm.org.apache.hadoop
        (principal,) = [name for name in PRINCIPALS if name.partition("/")[0] == user]
        logged_in = hadoop.security.UserGroupInformation.loginUserFromKeytabAndReturnUGI(
            f"{principal}@{REALM}", str(self.keytab)
        )
        address = self.mini.getNameNode(0).getNameNodeAddress()
        proxies = hadoop.hdfs.NameNodeProxiesClient
        names = proxies.createNonHAProxyWithClientProtocol(
            address, self.mini.getConfiguration(0), logged_in, False, None
        )
        token = hadoop.security.token.Token(names.getDelegationToken(hadoop.io.Text(_RENEWER)))
        hadoop.security.SecurityUtil.setTokenService(token, address)
        credentials = hadoop.security.Credentials()
        credentials.addToken(token.getService(), token)
        credentials.writeTokenStorageFile(hadoop.fs.Path(f"file:{path}"), hadoop.conf.Configuration())
        return token

    @contextmanager
    def renewing(self, *tokens: Any) -> Iterator[None]:
        """Keep tokens alive for the context, as YARN does for those of an application."""
        ends = threading.Event()

        def renew() -> None:
            while not ends.wait(_RENEWED_EVERY_S):
                for token in tokens:
                    with suppress(Exception):  # the NameNode starts
                        self.mini.getNameNodeRpc(0).renewDelegationToken(token)

        thread = threading.Thread(target=renew, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ends.set()
            thread.join()

    def wait_until_expired(self, token: Any) -> None:
        """Wait until the NameNode refuses a token, because its time is over."""
        from py4j.protocol import Py4JJavaError

        names = self.mini.getNamesystem(0).getDelegationTokenSecretManager()

        def is_refused() -> bool:
            try:
                names.verifyToken(token.decodeIdentifier(), token.getPassword())
            except Py4JJavaError as error:
                text = str(error.java_exception.toString())
                assert "expired" in text, text
                return True
            return False

        awaited(is_refused, "the token does not expire")

    def restart_namenode(self) -> None:
        """Restart the NameNode, which ends all connections, and return when it accepts writes."""
        self.mini.restartNameNode(True)
        files = self.mini.getFileSystem(0)
        awaited(lambda: not files.isInSafeMode(), "the NameNode does not leave safe mode")

    def files_below(self, path: str) -> set[str]:
        """Return the paths of all files below a directory, from there on."""
        found = set()
        hadoop = self.jvm.org.apache.hadoop
        files = self.mini.getFileSystem(0).listFiles(hadoop.fs.Path(path), True)
        while files.hasNext():
            found.add(str(files.next().getPath().toUri().getPath()).removeprefix(f"{path}/"))
        return found


@contextmanager
def running(token_life_s: int = 86400) -> Iterator[SecureCluster]:
    """Run a cluster for the context, whose delegation tokens end after some time unless they are renewed."""
    with tempfile.TemporaryDirectory(prefix="minikerberos-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        hadoop = maven_jars.hadoop_version()
        command = [f"{maven_jars.PLUGIN}:copy-dependencies", "-DincludeScope=runtime"]
        kdc = maven_jars.fetched(f"kdc-{hadoop}", command, _POM.format(hadoop=hadoop))
        jars = [*maven_jars.minicluster_class_path(), *kdc, f"{maven_jars.SPARK_JARS}/*"]
        with called_jvm(directory, jars) as gateway:
            try:
                cluster = _started(gateway, directory, token_life_s)
            except Exception as error:
                log = (directory / "log").read_text(errors="replace")[-4000:]
                raise RuntimeError(f"HDFS failed: {log}\n{error}") from error
            yield cluster


def _started(gateway: Any, directory: Path, token_life_s: int) -> SecureCluster:
    jvm, hadoop = gateway.jvm, gateway.jvm.org.apache.hadoop
    kdc = hadoop.minikdc.MiniKdc(hadoop.minikdc.MiniKdc.createConf(), jvm.java.io.File(str(directory)))
    kdc.start()
    keytab = directory / "all.keytab"
    names = gateway.new_array(jvm.java.lang.String, len(PRINCIPALS))
    for place, principal in enumerate(PRINCIPALS):
        names[place] = principal
    kdc.createPrincipal(jvm.java.io.File(str(keytab)), names)
    clients = {
        "hadoop.security.authentication": "kerberos",
        "dfs.namenode.kerberos.principal": SERVER,
        "dfs.datanode.kerberos.principal": SERVER,
        "dfs.web.authentication.kerberos.principal": WEB,
        "dfs.data.transfer.protection": "authentication",
    }
    servers = {
        **clients,
        "hadoop.security.authorization": "true",
        "dfs.block.access.token.enable": "true",
        "ignore.secure.ports.for.testing": "true",
        "dfs.namenode.keytab.file": str(keytab),
        "dfs.datanode.keytab.file": str(keytab),
        "dfs.web.authentication.kerberos.keytab": str(keytab),
        "dfs.namenode.kerberos.internal.spnego.principal": WEB,
        "hadoop.http.authentication.type": "kerberos",
        "hadoop.http.authentication.kerberos.principal": WEB,
        "hadoop.http.authentication.kerberos.keytab": str(keytab),
        "hadoop.proxyuser.gateway.hosts": "*",
        "hadoop.proxyuser.gateway.users": "*",
        "dfs.namenode.delegation.token.renew-interval": str(token_life_s * 1000),
        "dfs.replication": "1",
        "dfs.namenode.safemode.extension": "0",
        "hdfs.minidfs.basedir": str(directory / "data"),
    }
    configuration = hadoop.hdfs.HdfsConfiguration()
    for key, value in servers.items():
        configuration.set(key, value)
    hadoop.security.UserGroupInformation.setConfiguration(configuration)
    hadoop.security.UserGroupInformation.loginUserFromKeytab(SERVER, str(keytab))
    mini = hadoop.hdfs.MiniDFSCluster.Builder(configuration).numDataNodes(1).format(True).build()
    mini.waitActive()
    files = mini.getFileSystem(0)
    for user in ("alice", "hdfs"):
        home = hadoop.fs.Path(f"/user/{user}")
        files.mkdirs(home)
        files.setOwner(home, user, user)
        files.setPermission(home, hadoop.fs.permission.FsPermission("700"))
    web = f"localhost:{mini.getNameNode(0).getHttpAddress().getPort()}"
    conf = directory / "conf"
    conf.mkdir()
    uri = {"fs.defaultFS": f"hdfs://localhost:{mini.getNameNodePort(0)}", **clients}
    write_configuration(conf / "core-site.xml", uri)
    write_configuration(conf / "hdfs-site.xml", {"dfs.namenode.http-address": web, **clients})
    krb5 = Path(str(kdc.getKrb5conf().getAbsolutePath()))
    return SecureCluster(web, conf, krb5, keytab, jvm, mini)
