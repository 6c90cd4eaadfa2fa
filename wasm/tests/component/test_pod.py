"""infra/envoy/pod.yaml, filled in as every pod does it, run by the real Envoy."""

import string
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from filter_harness.proxy import ENVOY, ROOT, WASM, free_ports

pytestmark = pytest.mark.component

TEMPLATE = ROOT / "infra/envoy/pod.yaml"
HOSTS = ("ENVOY_ADMIN", "ENVOY_INBOUND", "ENVOY_OUTBOUND", "APP", "XDS", "COLLECTOR")


def fill(folder: Path) -> tuple[Path, dict[str, str]]:
    """The bootstrap with free ports, and the values; a placeholder without a value fails."""
    values = {f"{name}_HOST": "127.0.0.1" for name in HOSTS}
    values |= {f"{name}_PORT": str(port) for name, port in zip(HOSTS, free_ports(len(HOSTS)), strict=True)}
    values |= {"SPILLWAY_CLUSTER": "west", "SPILLWAY_SERVICE": "cart", "SPILLWAY_POD": "cart-1"}
    values["SPILLWAY_FILTER_WASM"] = str(WASM)
    path = folder / "pod.yaml"
    path.write_text(string.Template(TEMPLATE.read_text()).substitute(values))
    return path, values


def status(port: str, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=2) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def test_validates(tmp_path: Path) -> None:
    """Envoy takes the filled-in template, filter configuration included, without a warning."""
    path, _ = fill(tmp_path)
    command = [ENVOY, "--mode", "validate", "--disable-hot-restart", "-l", "warning", "-c", path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr, done.stderr


def test_starts_without_relay_and_says_so(tmp_path: Path) -> None:
    """With relay and collector away the listeners open within seconds and answer 503, not 404."""
    path, values = fill(tmp_path)
    command = [ENVOY, "--disable-hot-restart", "--concurrency", "1", "-l", "error", "-c", path]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 15
        while status(values["ENVOY_ADMIN_PORT"], "/ready") != 200:
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.1)
        assert status(values["ENVOY_INBOUND_PORT"], "/") == 503
        assert status(values["ENVOY_OUTBOUND_PORT"], "/") == 503
    finally:
        process.terminate()
        process.wait(10)
