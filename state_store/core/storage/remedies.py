"""Advice on failures of checkpoint storage that are recognised by their text."""

from __future__ import annotations

import re

_REMEDIES = {
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
