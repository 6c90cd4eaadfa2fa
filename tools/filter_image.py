"""Writes the filter's module as an OCI image layout and prints the image's digest.

Usage: python tools/filter_image.py <module.wasm> <folder> <version>

Istio and Envoy Gateway pull this form. It is the "compat" variant of the Wasm Image Specification,
https://github.com/solo-io/wasm/tree/master/spec: one layer of the usual media type with the file
plugin.wasm, so every registry accepts it. The same module gives the same digest.
"""

import gzip
import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
FILE = "plugin.wasm"
MAGIC = b"\0asm"


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def archive(module: bytes) -> bytes:
    """Returns a tar that contains the module alone.

    It has no time, no owner and nothing else that differs between machines.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        entry = tarfile.TarInfo(FILE)
        entry.size, entry.mode = len(module), 0o644
        tar.addfile(entry, io.BytesIO(module))
    return buffer.getvalue()


def write(module: bytes, folder: Path, version: str) -> str:
    """Writes the layout into a new folder. Returns the digest of the image's manifest."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def blob(media_type: str, content: bytes) -> dict:
        digest = sha256(content)
        (blobs / digest.removeprefix("sha256:")).write_bytes(content)
        return {"mediaType": media_type, "digest": digest, "size": len(content)}

    def document(media_type: str, content: dict) -> dict:
        return blob(media_type, json.dumps(content, sort_keys=True).encode())

    files = archive(module)
    layer = blob(LAYER, gzip.compress(files, mtime=0))
    rootfs = {"type": "layers", "diff_ids": [sha256(files)]}
    config = document(CONFIG, {"architecture": "wasm", "os": "wasip1", "config": {}, "rootfs": rootfs})
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config,
        "layers": [layer],
        "annotations": {
            "module.wasm.image/variant": "compat",
            "org.opencontainers.image.title": "spillway-filter",
            "org.opencontainers.image.description": "Spillway's filter for Envoy",
            "org.opencontainers.image.licenses": "Apache-2.0",
            "org.opencontainers.image.version": version,
        },
    }
    image = document(MANIFEST, manifest)
    named = image | {"annotations": {"org.opencontainers.image.ref.name": version}}
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [named]}))
    (folder / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))
    return image["digest"]


def main(arguments: list[str]) -> int:
    if len(arguments) != 3:
        print(__doc__.split("\n\n")[1], file=sys.stderr)
        return 64
    module = Path(arguments[0]).read_bytes()
    if not module.startswith(MAGIC):
        print(f"{arguments[0]}: not a WebAssembly module", file=sys.stderr)
        return 65
    print(write(module, Path(arguments[1]), arguments[2]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
