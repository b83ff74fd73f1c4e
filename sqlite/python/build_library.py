"""Builds the loadable extension for the wheel, with cargo. TANTALUM_SQLITE_PROFILE names another profile than release."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BuildLibrary(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        build_data["force_include"][self.build()] = "tantalum_sqlite/libtantalum_sqlite.so"
        # It knows nothing of Python: one wheel for all versions.
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
        build_data["pure_python"] = False

    def build(self) -> str:
        manifest = Path(self.root).parent / "extension" / "Cargo.toml"
        profile = os.environ.get("TANTALUM_SQLITE_PROFILE", "release")
        command = ["cargo", "build", "--locked", "--message-format", "json-render-diagnostics", "--profile", profile]
        built = subprocess.run([*command, "--manifest-path", manifest], check=True, stdout=subprocess.PIPE, text=True)
        for message in map(json.loads, built.stdout.splitlines()):
            # The crate of the VFS has the same name, but is no library for other programs.
            if message["reason"] == "compiler-artifact" and message["target"]["kind"] == ["cdylib"]:
                library: str = message["filenames"][0]
                return library
        raise RuntimeError("cargo has built no loadable extension")
