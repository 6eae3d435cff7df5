"""Python imports this in each process of the tests: the home on a user's record is this file's directory.

Some owners of caches follow that record whatever the variables say. Imports little, as hundreds of processes
start with it.
"""

import os
import sys

if sys.platform != "win32":
    import pwd

    _home = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib would be imported
    _as_recorded = pwd.getpwuid

    def _below_tests(uid: int) -> pwd.struct_passwd:
        record = _as_recorded(uid)
        return pwd.struct_passwd((*record[:5], _home, record[6]))

    pwd.getpwuid = _below_tests
