"""Advice on failures of checkpoint storage that are recognised by their text."""

from __future__ import annotations

import re

_REMEDIES = {
    r"expired ?token|token (has|is) expired": "the credentials have expired: get new ones",
    r"invalid_?access_?key_?id": "the service does not know this key: see AWS_ACCESS_KEY_ID and AWS_PROFILE",
    r"signature_?does_?not_?match": (
        "the secret is not that of the key: see AWS_SECRET_ACCESS_KEY and AWS_PROFILE"
    ),
    r"request_?time_?too_?skewed": "set the clock of this machine",
    r"permanent_?redirect|authorization_?header_?malformed|http status 301": (
        "the bucket is in another region: set AWS_DEFAULT_REGION to that of the bucket"
    ),
    r"kms\.|kms_?(disabled|invalid|not_?found|access)": (
        "the key of the bucket's encryption is disabled, or this user may not use it: see AWS KMS"
    ),
    r"invalid_?object_?state|not valid for the object's storage class": (
        "the file is in an archive tier: restore it there"
    ),
    r"could not create a oauth2 access token": (
        "no credentials of Google Cloud are found: run `gcloud auth application-default login`, or set "
        "GOOGLE_APPLICATION_CREDENTIALS"
    ),
    r"container_?not_?found": "make the container, or correct its name in the checkpoint location",
    r"authentication failure": (
        "the cluster asks for Kerberos: pip install requests-kerberos (the extra `kerberos`) and run kinit, "
        "or set HADOOP_TOKEN_FILE_LOCATION to a file with a delegation token. Queries are not concerned: "
        "their JVM speaks it"
    ),
    r"safe ?mode": "the NameNode accepts no changes before safe mode ends: see `hdfs dfsadmin -safemode get`",
    r"disk quota exceeded": "delete files of this user there, or have the quota raised",
    r"quota.*exceeded": "delete what is not needed there, or raise it (`hdfs dfsadmin -setSpaceQuota`)",
    r"permission denied|access ?control|access_?denied|forbidden|\b403\b": (
        "the query's user must be allowed to list, read, write and delete below the checkpoint directory"
    ),
    r"could only be (written|replicated) to|all datanodes .* are bad|could not obtain block": (
        "too few DataNodes answer: `hdfs dfsadmin -report` shows which are dead"
    ),
    r"no[ _]?such[ _]?bucket": "make the bucket, or correct its name in the checkpoint location",
    r"slow[ _]?down|too many requests|\b503\b|\b429\b": (
        "the service is asked too often: try again later, or with fewer `transferThreads`"
    ),
    r"no space left|disk is full": "free space there: `state-store files` shows what takes it",
    r"read-only file system": "it must be mounted so that it can be written",
    r"not a directory": "remove the file that stands where a directory has to be, or correct the location",
}
_KNOWN = tuple((re.compile(words, re.IGNORECASE | re.DOTALL), remedy) for words, remedy in _REMEDIES.items())


def with_remedy(why: str) -> str:
    """Return the first line of a storage's message, with advice if the failure is known."""
    first = why.partition("\n")[0].rstrip()
    for words, remedy in _KNOWN:
        if words.search(first):
            return f"{first} ({remedy})"
    return first
