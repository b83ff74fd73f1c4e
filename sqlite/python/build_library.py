"""Builds the loadable extension for the wheel, with cargo. TANTALUM_SQLITE_LIBRARY names one that is there already."""

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
        library = os.environ.get("TANTALUM_SQLITE_LIBRARY") or self.build()
        build_data["force_include"][library] = "tantalum_sqlite/libtantalum_sqlite.so"
        # It knows nothing of Python: one wheel for all versions.
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
        build_data["pure_python"] = False

    def build(self) -> str:
        manifest = Path(self.root).parent / "extension" / "Cargo.toml"
        command = ["cargo", "build", "--release", "--locked", "--message-format", "json-render-diagnostics"]
        built = subprocess.run([*command, "--manifest-path", manifest], check=True, stdout=subprocess.PIPE, text=True)
        for message in map(json.loads, built.stdout.splitlines()):
            if message["reason"] == "compiler-artifact" and message["target"]["name"] == "tantalum_sqlite":
                library: str = message["filenames"][0]
                return library
        raise RuntimeError("cargo has built no library tantalum_sqlite")
