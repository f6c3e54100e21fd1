#!/usr/bin/env python3
"""apiary/examples/hosts/c/session_script.py - two schedulers of apiary, used from Python by ctypes.

SPDX-License-Identifier: MIT

session_script.py LIBRARY             prints session.expected
session_script.py LIBRARY --times N   measures N lines: microseconds for each
"""
import ctypes
import json
import sys
import time

ABI = 2


class Library:
    """The shared object libapiary_session.so; its ABI is checked when it is loaded."""

    def __init__(self, path):
        self.c = ctypes.CDLL(path)
        self.c.apiary_session_abi_version.restype = ctypes.c_uint
        self.abi = self.c.apiary_session_abi_version()
        if self.abi != ABI:
            raise ImportError(f"{path} has ABI {self.abi}, this script {ABI}")
        self.c.apiary_session_new.restype = ctypes.c_void_p
        self.c.apiary_session_new.argtypes = [ctypes.c_uint, ctypes.c_char_p]
        self.c.apiary_session_clone.restype = ctypes.c_void_p
        self.c.apiary_session_clone.argtypes = [ctypes.c_void_p]
        self.c.apiary_session_free.restype = None
        self.c.apiary_session_free.argtypes = [ctypes.c_void_p]
        self.c.apiary_session_line.restype = ctypes.c_char_p
        self.c.apiary_session_line.argtypes = [ctypes.c_void_p, ctypes.c_char_p]


class Session:
    """One scheduler of a kind, "gang" or "hived"."""

    def __init__(self, library, kind, handle=None):
        self.library = library
        self.kind = kind
        self.handle = handle or library.c.apiary_session_new(ABI, kind.encode())
        if not self.handle:
            raise ValueError(f"there is no session of kind {kind!r}")

    def __del__(self):
        if getattr(self, "handle", None):
            self.library.c.apiary_session_free(self.handle)

    def clone(self):
        handle = self.library.c.apiary_session_clone(self.handle)
        if not handle:
            raise MemoryError
        return Session(self.library, self.kind, handle)

    def text(self, line):
        """The answer to a line, as text."""
        return self.library.c.apiary_session_line(self.handle, line.encode()).decode()

    def __call__(self, op, **fields):
        """The answer to an operation, as text."""
        return self.text(json.dumps({"op": op, **fields}))


def measure(library, lines):
    session = Session(library, "gang")
    racks = "\n".join(f"SwitchName=r{r} Nodes=n[{10 * r}-{10 * r + 9}]" for r in range(100))
    session("config", topology=racks, nodes="NodeName=n[0-999] Gres=gpu:8")
    start = time.perf_counter()
    wrong = 0
    for i in range(lines):
        job = i // 3
        if i % 3 == 0:
            answer = session.text(
                f'{{"op":"propose","group":{job},"members":[{{"pods":2,"leafs":8}}],"required":"rack"}}')
        elif i % 3 == 1:
            answer = session.text('{"op":"commit"}')
        else:
            answer = session.text('{"op":"note"}' if job < 400
                                  else f'{{"op":"delete","group":{job - 400}}}')
        wrong += ('"bind"' if i % 3 == 0 else '"ok"') not in answer
    print(f"{(time.perf_counter() - start) / lines * 1e6:.2f} us a line, {wrong} unexpected answers")
    return wrong != 0


def main():
    library = Library(sys.argv[1])
    if sys.argv[2:3] == ["--times"]:
        return measure(library, int(sys.argv[3]))
    print("ABI", library.abi)
    gangs = Session(library, "gang")
    print(gangs("config", topology="SwitchName=r0 Nodes=n[0-1]\nSwitchName=r1 Nodes=n[2-3]",
                nodes="NodeName=n[0-3] Gres=gpu:8"))
    print(gangs("propose", group="train", members=[{"pods": 2, "leafs": 8}], required="rack"))
    print(gangs("commit"))
    large = {"group": "large", "members": [{"pods": 4, "leafs": 8}]}
    print(gangs("propose", **large))
    print(gangs("delete", group="nothing"))
    print("on a copy, without the job:")
    copy = gangs.clone()
    print(copy("delete", group="train"))
    print(copy("propose", **large))
    print("the original:")
    print(gangs("audit"))
    print("HiveD:")
    hived = Session(library, "hived")
    node = {"childCellType": "GPU", "childCellNumber": 4, "isNodeLevel": True}
    print(hived("config",
                physicalCluster={"cellTypes": {"NODE": node},
                                 "physicalCells": [{"cellType": "NODE", "cellAddress": "n0"}]},
                virtualClusters={"a": {"virtualCells": [{"cellType": "NODE", "cellNumber": 1}]}}))
    print(hived("schedule", group="g", vc="a", priority=1, members=[{"pods": 1, "leafs": 2}]))
    print("faults:")
    if not library.c.apiary_session_new(ABI + 1, b"gang"):
        print("another ABI: no session")
    try:
        Session(library, "other")
    except ValueError:
        print("another kind: no session")
    print(library.c.apiary_session_line(None, b"{}").decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
