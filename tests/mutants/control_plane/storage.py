"""Breaks of `state_store/core/storage`: bytes are durable before their name, which is written once."""

from __future__ import annotations

from mutants.mutant import Mutant

_STORAGE = "state_store/core/storage"

MUTANTS = [
    Mutant(
        "a file that stays ends the deletion of others",
        f"{_STORAGE}/contract.py",
        "            self._first = self._first or error\n",
        "            raise\n",
        ("tests/core/storage/test_independent_deletions.py",),
    ),
    Mutant(
        "a file that stays ends the deletion of a local directory",
        f"{_STORAGE}/local.py",
        "shutil.rmtree(self._at(directory), ignore_errors=True)  # a file that stays ends nothing\n",
        "pass\n",
        ("tests/core/storage/test_independent_deletions.py",),
    ),
    Mutant(
        "a file that cannot be synced counts as written",
        f"{_STORAGE}/local_disk.py",
        "        if error.errno not in _NO_SYNC or not stat.S_ISDIR(os.fstat(descriptor).st_mode):",
        "        if error.errno not in _NO_SYNC:",
        ("tests/core/storage/test_local.py",),
    ),
    Mutant(
        "without hard links an existing file is replaced without being asked",
        f"{_STORAGE}/local_disk.py",
        "    if path.exists():\n        raise FileExistsError",
        "    if False:\n        raise FileExistsError",
        ("tests/core/storage/test_local.py",),
    ),
    Mutant(
        "an existing name is not synced",
        f"{_STORAGE}/local_disk.py",
        "    except FileExistsError:\n        _sync(parent)\n        raise\n    if linked:",
        "    except FileExistsError:\n        raise\n    if linked:",
        ("tests/core/storage/test_local.py",),
    ),
    Mutant(
        "a directory is not synced after a link",
        f"{_STORAGE}/local_disk.py",
        "    if linked:\n        _sync(parent)\n",
        "    if linked:\n        pass\n",
        ("tests/core/storage/test_local.py",),
    ),
    Mutant(
        "a file is not synced before it is linked",
        f"{_STORAGE}/local_disk.py",
        "    _sync(source)\n",
        "",
        ("tests/core/storage/test_local.py",),
    ),
    Mutant(
        "bytes are not synced before they get their name",
        f"{_STORAGE}/local_disk.py",
        "            _write_all(descriptor, data)\n            os.fsync(descriptor)\n",
        "            _write_all(descriptor, data)\n",
        ("tests/core/storage/test_local.py",),
    ),
    Mutant(
        "a new directory is not synced in its parent",
        f"{_STORAGE}/local_disk.py",
        "    directory.mkdir(exist_ok=True)\n    _sync(directory.parent)\n",
        "    directory.mkdir(exist_ok=True)\n",
        ("tests/core/storage/test_local.py",),
    ),
    Mutant(
        "an existing file is replaced without being asked",
        f"{_STORAGE}/local_disk.py",
        "        if overwrite:\n            temporary.rename(path)\n",
        "        if True:\n            temporary.rename(path)\n",
        ("tests/core/storage/test_local.py",),
    ),
    Mutant(
        "a short write counts as complete",
        f"{_STORAGE}/local_disk.py",
        "        view = view[os.write(descriptor, view) :]\n",
        "        os.write(descriptor, view)\n        break\n",
        ("tests/core/storage/test_local.py",),
    ),
    Mutant(
        "a look for a file that fails over WebHDFS counts as its absence",
        f"{_STORAGE}/webhdfs.py",
        "        except MissingError:\n            return False\n        return bool(",
        "        except StateStoreError:\n            return False\n        return bool(",
        ("tests/core/storage/test_webhdfs.py",),
    ),
]
