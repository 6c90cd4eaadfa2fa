"""`make package`: helm and Istio pull from a registry exactly the bytes that it pushed."""

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import charts
import pytest
import yaml
from cluster_chart import REQUIRED
from spillway_lab.testing.programs import program
from spillway_lab.testing.servers import ROOT, Server, free_port, running

# Istio's code is compiled the first time
pytestmark = [pytest.mark.deploy, pytest.mark.timeout(900)]
MODULE = Path(os.environ["SPILLWAY_FILTER_WASM"])
VERSION = "1.2.3-rc.1"  # differs from the file VERSION, because the package follows the command
CHARTS = ("spillway-cluster", "spillway-global", "spillway-sidecar")
ISTIO = {"enabled": True, "namespaces": ["shop"], "relayAuthority": "PEM"}
GLOBAL = {"kafka": {"brokers": "kafka:9093", "clusters": ["west"]}}
GATE = {"service": "gate", "namespace": "shop", "edge": True}


def answers(url: str) -> bool:
    try:
        return urllib.request.urlopen(f"{url}/v2/", timeout=1).status == 200
    except (urllib.error.URLError, OSError):
        return False


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """host:port/folder of a registry without TLS that stores its content in memory."""
    address = f"127.0.0.1:{free_port()}"
    server = Server(
        url=f"http://{address}",
        command=[program("crane"), "registry", "serve", "--address", address],
        log=tmp_path_factory.mktemp("registry") / "log",
        ready=lambda: answers(f"http://{address}"),
    )
    with running(server):
        yield f"{address}/spillway"


def package(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    unset = {"REGISTRY", "VERSION", "PUSH", "PLAIN_HTTP"}
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment |= {"DIST": str(folder), **variables}
    return subprocess.run(
        [ROOT / "tools/package"], env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def packed(registry: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the packages, which were also pushed."""
    folder = tmp_path_factory.mktemp("dist")
    done = package(folder, VERSION=VERSION, REGISTRY=registry, PUSH="1", PLAIN_HTTP="1")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def pulled(registry: str, packed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the charts as helm pulls them."""
    folder = tmp_path_factory.mktemp("pulled")
    for chart in CHARTS:
        source = f"oci://{registry}/charts/{chart}"
        done = charts.helm("pull", source, "--version", VERSION, "--plain-http", "--destination", folder)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def plugin(packed: Path, pulled: Path) -> dict:
    """The WasmPlugin of the pulled chart, with the values that were written beside it."""
    values = REQUIRED | {"istio": ISTIO | {"filter": {"services": [GATE]}}}
    chart = pulled / f"spillway-cluster-{VERSION}.tgz"
    objects = charts.render(chart, values, (packed / "istio-filter.yaml",))
    return charts.of(objects, "WasmPlugin")["spillway-gate-inbound"]["spec"]


def test_charts_are_pulled_as_they_were_packed(packed: Path, pulled: Path):
    for chart in CHARTS:
        name = f"{chart}-{VERSION}.tgz"
        assert (pulled / name).read_bytes() == (packed / name).read_bytes()


def test_a_chart_has_one_version_for_itself_and_its_images(pulled: Path):
    for chart in CHARTS:
        shown = yaml.safe_load(charts.helm("show", "chart", pulled / f"{chart}-{VERSION}.tgz").stdout)
        assert (shown["version"], shown["appVersion"]) == (VERSION, VERSION)
    objects = charts.render(pulled / f"spillway-cluster-{VERSION}.tgz", REQUIRED)
    images = [c["image"] for _, pod in charts.pods(objects) for c in charts.containers(pod)]
    assert {image.rpartition(":")[2] for image in images} == {VERSION}


def test_a_packed_chart_renders_what_its_folder_does(pulled: Path):
    """Files and the library are links in the folder, and real files in the archive."""
    values = {"image": {"tag": "a", "registry": "registry.example"}}
    for chart, more in (("spillway-cluster", REQUIRED), ("spillway-global", GLOBAL)):
        made = []
        for source in (pulled / f"{chart}-{VERSION}.tgz", ROOT / "infra/helm" / chart):
            text = json.dumps(charts.render(source, more | values), sort_keys=True)
            made.append(text.replace(VERSION, "V").replace((ROOT / "VERSION").read_text().strip(), "V"))
        assert made[0] == made[1]


def istio(url: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs what Istio's agent does with the url of a WasmPlugin that has no sha256."""
    command = ["go", "run", ".", url, "", folder]
    return subprocess.run(command, cwd=ROOT / "tools/wasmfetch", capture_output=True, text=True, check=False)


def test_istio_takes_the_module_that_was_packed(plugin: dict, tmp_path: Path):
    """Istio's own code fetches the module from the registry with the url that the chart renders.

    The url contains the digest, so there is no sum.
    """
    assert "sha256" not in plugin
    done = istio(plugin["url"], tmp_path)
    assert done.returncode == 0, done.stderr
    path = done.stdout.splitlines()[-1]  # the lines before it are Istio's log
    assert Path(path).read_bytes() == MODULE.read_bytes()


def test_istio_takes_no_other_image(registry: str, tmp_path: Path):
    """The digest is that of the image. The module's own sum finds nothing."""
    digest = hashlib.sha256(MODULE.read_bytes()).hexdigest()
    done = istio(f"oci://{registry}/spillway-filter@sha256:{digest}", tmp_path)
    assert done.returncode == 1 and "could not fetch" in done.stderr


def test_the_image_has_the_module_alone(registry: str, plugin: dict, tmp_path: Path):
    """The image has the form that Istio and Envoy Gateway require.

    It has one layer with the file plugin.wasm.
    """
    image = f"{registry}/spillway-filter:{VERSION}"
    crane = program("crane")
    digest = subprocess.run(
        [crane, "digest", image], check=True, capture_output=True, text=True
    ).stdout.strip()
    assert plugin["url"].endswith(f"/spillway-filter@{digest}")
    manifest = json.loads(subprocess.run([crane, "manifest", image], check=True, capture_output=True).stdout)
    [layer] = manifest["layers"]
    assert layer["mediaType"] == "application/vnd.oci.image.layer.v1.tar+gzip"
    assert manifest["annotations"]["module.wasm.image/variant"] == "compat"
    assert manifest["annotations"]["org.opencontainers.image.version"] == VERSION
    subprocess.run([crane, "validate", "--remote", image], check=True, capture_output=True)
    subprocess.run([crane, "export", image, tmp_path / "files.tar"], check=True)
    with tarfile.open(tmp_path / "files.tar") as files:
        assert files.getnames() == ["plugin.wasm"]


def test_the_sums_are_of_every_file(packed: Path):
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=packed, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    listed = {line.split()[1].removeprefix("./") for line in (packed / "SHA256SUMS").read_text().splitlines()}
    files = {str(path.relative_to(packed)) for path in packed.rglob("*") if path.is_file()}
    assert listed == files - {"SHA256SUMS"} and len(listed) >= 9


def test_the_same_module_has_the_same_digest(packed: Path, plugin: dict, tmp_path: Path):
    """Anyone who builds the same module again can compare the digests."""
    command = [sys.executable, ROOT / "tools/filter_image.py", MODULE, tmp_path / "image", VERSION]
    digest = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    assert plugin["url"].endswith(f"@{digest}")


def test_what_is_no_module_is_not_packed(tmp_path: Path):
    (tmp_path / "text").write_text("text")
    command = [sys.executable, ROOT / "tools/filter_image.py", tmp_path / "text", tmp_path / "image", VERSION]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 65 and "not a WebAssembly module" in done.stderr
    assert not (tmp_path / "image").exists()


def test_a_push_needs_a_registry(tmp_path: Path):
    done = package(tmp_path / "dist", PUSH="1")
    assert done.returncode == 64 and done.stderr.startswith("usage: make package ")
    assert not (tmp_path / "dist").exists()


def test_without_a_registry_only_files_are_made(tmp_path: Path):
    """The files have the version of the file VERSION, and those of another version are removed."""
    (tmp_path / "spillway-global-0.0.1.tgz").write_text("old")
    assert package(tmp_path).returncode == 0
    version = (ROOT / "VERSION").read_text().strip()
    made = {f"{chart}-{version}.tgz" for chart in CHARTS} | {f"spillway-filter-{version}", "SHA256SUMS"}
    assert {path.name for path in tmp_path.iterdir()} == made
