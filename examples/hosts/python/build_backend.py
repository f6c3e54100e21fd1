"""Builds the wheel of apiary with CMake. pip calls build_wheel, as PEP 517 says.

It needs CMake, Ninja, a C++20 compiler, Abseil, pybind11 and the headers of Python, and no package of
Python. Debian: cmake ninja-build g++ libabsl-dev pybind11-dev python3-dev.

SPDX-License-Identifier: MIT
"""

import base64
import contextlib
import hashlib
import pathlib
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import zipfile

HERE = pathlib.Path(__file__).resolve().parent


def _tag() -> str:
    """The tag of the wheel: which Python and which platform it is for."""
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return f"{python}-{python}-{platform}"


def _metadata(project: dict) -> str:
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {project['name']}",
        f"Version: {project['version']}",
        f"Summary: {project['description']}",
        f"License: {project['license']['text']}",
        f"Requires-Python: {project['requires-python']}",
    ]
    lines += [f"Requires-Dist: {name}" for name in project["dependencies"]]
    return "\n".join(lines) + "\n"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Builds the wheel in `wheel_directory` and returns its name.

    `pip install --config-settings build-dir=DIR` keeps the build in DIR, so that the next one compiles
    only what has changed.
    """
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    base = f"{project['name']}-{project['version']}"
    with contextlib.ExitStack() as stack:
        build = (config_settings or {}).get("build-dir")
        if build is None:
            build = stack.enter_context(tempfile.TemporaryDirectory())
        stage = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for command in (
            ["cmake", "-G", "Ninja", "-S", HERE, "-B", build, f"-DPython3_EXECUTABLE={sys.executable}"],
            ["cmake", "--build", build],
            ["cmake", "--install", build, "--prefix", stage, "--strip"],
        ):
            subprocess.run(command, check=True)
        files = {
            path.relative_to(stage).as_posix(): path.read_bytes()
            for path in sorted(stage.rglob("*"))
            if path.is_file()
        }
    info = f"{base}.dist-info"
    files[f"{info}/METADATA"] = _metadata(project).encode()
    files[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: build_backend\nRoot-Is-Purelib: false\nTag: {_tag()}\n"
    ).encode()
    record = ""
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(content)}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()

    wheel = f"{base}-{_tag()}.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return wheel
