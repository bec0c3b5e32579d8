"""Generates kubelet_plugin/kubelet/pb from the .proto files beside this one.

``python proto/generate.py`` writes; with ``--check`` it only compares and exits 1 when what is
committed is stale. The generator is pinned, so the same input gives the same bytes.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

SOURCES = Path(__file__).resolve().parent
PACKAGE = "kubelet_plugin/kubelet/pb"
TARGET = SOURCES.parent / PACKAGE
DOCSTRING = '"""Generated from proto/ by `make proto`: messages of the kubelet\'s gRPC."""\n'


def generate(root: Path) -> dict[str, bytes]:
    """Gives the generated files by name, made below ``root``."""
    protos = sorted(SOURCES.glob("*.proto"))
    arguments = [
        "protoc",
        f"-I{PACKAGE}={SOURCES}",
        f"--python_out={root}",
        f"--pyi_out={root}",
        *(f"{PACKAGE}/{proto.name}" for proto in protos),
    ]
    if protoc.main(arguments) != 0:
        sys.exit("protoc failed: see its message above")
    made = {path.name: path.read_bytes() for path in sorted((root / PACKAGE).iterdir())}
    return made | {"__init__.py": DOCSTRING.encode()}


def main() -> None:
    """Writes or checks the generated package."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only")
    check: bool = parser.parse_args().check
    with tempfile.TemporaryDirectory() as scratch:
        fresh = generate(Path(scratch))
    if check:
        committed = {p.name: p.read_bytes() for p in TARGET.iterdir() if p.is_file()}
        stale = sorted(n for n in fresh.keys() | committed if fresh.get(n) != committed.get(n))
        if stale:
            sys.exit(f"stale in {PACKAGE}: {', '.join(stale)}; run `make proto`")
        return
    TARGET.mkdir(exist_ok=True)
    for path in TARGET.iterdir():
        if path.is_file() and path.name not in fresh:
            path.unlink()
    for name, content in fresh.items():
        (TARGET / name).write_bytes(content)


if __name__ == "__main__":
    main()
