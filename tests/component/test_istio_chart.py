"""The chart's objects for Istio.

They are the input of the relay's test with a real Envoy, which runs the EnvoyFilter
(rule-publisher/relay/featuretests/envoy/istio_test.go). The filter is tested as Istio would install
it in a sidecar.
"""

import json
import subprocess
from pathlib import Path

import cluster_chart
import pytest
import yaml
from cluster_chart import find, pods, render
from sidecar_pods import ENVOY, HOST, WASM, Counts, answers, get
from spillway_lab.testing.servers import ROOT, Server, free_port, running

pytestmark = pytest.mark.component
REQUESTS = 200  # number of requests on each side
TESTDATA = ROOT / "rule-publisher/relay/featuretests/envoy/testdata/istio"
VALUES = yaml.safe_load((TESTDATA / "values.yaml").read_text())
_PACKAGE = "type.googleapis.com/envoy.extensions.filters"


@pytest.fixture(scope="module")
def objects() -> list[dict]:
    return render(VALUES)


def test_the_relays_test_runs_what_the_chart_renders(objects: list[dict]):
    """The kept file is the output of helm for its values.

    The command is `helm template … --show-only templates/istio/envoyfilter.yaml`, and the file is
    testdata/istio/envoyfilter.yaml.
    """
    for kept in filter(None, yaml.safe_load_all((TESTDATA / "envoyfilter.yaml").read_text())):
        made = find(objects, "EnvoyFilter", kept["metadata"]["name"])
        assert kept["spec"] == made["spec"], f"stale: render {TESTDATA}/envoyfilter.yaml again"


def test_the_relay_is_told_whom_it_lets_in(objects: list[dict]):
    """The relay accepts the namespaces of the mesh, by the mesh's trust domain.

    Relay and collector trust the mesh's root as well as their own.
    """
    for name, variable in (
        ("spillway-relay", "SPILLWAY_XDS_CLIENT_CA"),
        ("spillway-collector", "SPILLWAY_OTLP_TLS_CLIENT_CA"),
    ):
        pod = pods(objects)[name]
        found = {v["name"]: v.get("value") for v in pod["containers"][0]["env"]}
        mounts = {m["mountPath"]: m["name"] for m in pod["containers"][0]["volumeMounts"]}
        volumes = {v["name"]: v for v in pod["volumes"]}
        volume = volumes[mounts[str(Path(found[variable]).parent)]]
        assert volume["configMap"]["name"] == "spillway-mesh-authorities"
    relay = {v["name"]: v.get("value") for v in pods(objects)["spillway-relay"]["containers"][0]["env"]}
    assert relay["SPILLWAY_XDS_MESH"] == "spiffe://cluster.local/ns/shop/sa/{service}"


def sidecar(plugins: list[dict], folder: Path, ports: tuple[int, ...] = (0, 0), admin: int = 0) -> Path:
    """Writes a bootstrap with one listener per plugin and returns its path.

    Each listener has the filter as istiod derives it from a WasmPlugin
    (pilot/pkg/model/extensions.go): configuration as JSON in a StringValue, no vm_id, and
    pluginName as root id.
    """
    listeners = []
    for plugin, port in zip(plugins, ports, strict=True):
        spec = plugin["spec"]
        config = {
            "name": f"{plugin['metadata']['namespace']}.{plugin['metadata']['name']}",
            "root_id": spec["pluginName"],
            "failure_policy": spec["failStrategy"],
            "vm_config": {"runtime": "envoy.wasm.runtime.v8", "code": {"local": {"filename": WASM}}},
            "configuration": {
                "@type": "type.googleapis.com/google.protobuf.StringValue",
                "value": json.dumps(spec["pluginConfig"]),
            },
        }
        filters = [
            {
                "name": config["name"],
                "typed_config": {"@type": f"{_PACKAGE}.http.wasm.v3.Wasm", "config": config},
            },
            {"name": "router", "typed_config": {"@type": f"{_PACKAGE}.http.router.v3.Router"}},
        ]
        host = {"name": "x", "domains": ["*"]}
        host["routes"] = [{"match": {"prefix": "/"}, "direct_response": {"status": 200}}]
        manager = {
            "@type": f"{_PACKAGE}.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "x", "route_config": {"name": "x", "virtual_hosts": [host]}, "http_filters": filters,
        }  # fmt: skip
        listeners.append({
            "name": config["root_id"],
            "address": {"socket_address": {"address": HOST, "port_value": port}},
            "filter_chains": [{"filters": [{"name": "hcm", "typed_config": manager}]}],
        })  # fmt: skip
    path = folder / "envoy.yaml"
    node = {"id": "sidecar~10.1.1.7~gate-1.shop~shop.svc.cluster.local", "cluster": "gate.shop"}
    page = {"address": {"socket_address": {"address": HOST, "port_value": admin}}}
    path.write_text(
        yaml.safe_dump({"node": node, "admin": page, "static_resources": {"listeners": listeners}})
    )
    return path


def validate(path: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        [ENVOY, "-c", str(path), "--mode", "validate"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_filter_takes_what_a_wasmplugin_says(objects: list[dict], tmp_path: Path):
    """A real Envoy accepts the pluginConfig of both directions.

    It refuses one that lacks a field, so the filter did read it.
    """
    plugins = [o for o in objects if o["kind"] == "WasmPlugin"]
    sides = {p["spec"]["match"][0]["mode"]: p["spec"]["pluginConfig"]["direction"] for p in plugins}
    assert sides == {"CLIENT": "outbound", "SERVER": "inbound"}
    edges = {p["spec"]["match"][0]["mode"]: p["spec"]["pluginConfig"].get("edge") for p in plugins}
    assert edges == {"CLIENT": None, "SERVER": True}
    done = validate(sidecar(plugins, tmp_path))
    assert done.returncode == 0, done.stderr
    del plugins[0]["spec"]["pluginConfig"]["service"]
    done = validate(sidecar(plugins, tmp_path))
    assert done.returncode != 0
    assert "service" in done.stderr


def test_half_of_the_traces_are_sampled(tmp_path: Path):
    """A real Envoy runs what helm renders for a namespace with its own ratio.

    Each request on both sides begins a trace. Half of the requests leave a span, and all count as
    arrivals.
    """
    values = VALUES | {"sampling": {"ratio": 1, "namespaces": {"shop": 0.5}}}
    plugins = [o for o in render(values) if o["kind"] == "WasmPlugin"]
    ports, admin = (free_port(), free_port()), free_port()
    command = [ENVOY, "-c", str(sidecar(plugins, tmp_path, ports, admin)), "--disable-hot-restart"]
    ready = f"http://{HOST}:{admin}/ready"
    with running(Server(ready, command, tmp_path / "envoy.log", lambda: answers(ready))):
        for port in ports:
            for _ in range(REQUESTS):
                get(f"http://{HOST}:{port}/")
        counts = Counts.settled(admin)
    assert counts.arrivals == 2 * REQUESTS
    counts.check(2 * REQUESTS, 0.5)


def with_filter(**changes) -> dict:
    values = json.loads(json.dumps(VALUES))
    values["istio"]["filter"] |= changes
    return values


DIGEST = "@sha256:" + "0123456789abcdef" * 4
FILE = {"url": "https://files.example/filter.wasm", "sha256": "ab" * 32}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"url": "oci://registry.example/spillway-filter:0.1.0"}, "istio.filter.url"),
        ({"url": "oci://registry.example/spillway-filter@sha256:0123"}, "istio.filter.url"),
        ({"sha256": FILE["sha256"]}, "istio.filter.sha256: only with http"),
        ({"url": FILE["url"]}, "istio.filter.sha256: not set"),
    ],
    ids=["a tag alone", "half a digest", "a sum of the module beside a digest", "a file without its sum"],
)
def test_a_module_that_is_not_pinned_is_refused(changes: dict, complaint: str):
    """The code behind an address alone could change.

    For an image, Istio compares `sha256` with the manifest's digest. The module's own sum never
    matches it, so the filter would be left out and requests would go on without any notice.
    """
    chart = str(cluster_chart.CHARTS / "spillway-cluster")
    done = cluster_chart.helm("template", "r", chart, values=with_filter(**changes))
    assert done.returncode != 0
    assert complaint in done.stderr


def test_a_wasmplugin_is_pinned_by_digest_or_by_sum():
    """An image is pinned by its manifest's digest without a sum, and has its pull settings.

    A file is pinned by the module's sum. Both fail open, so no request fails because of the filter.
    """
    image = with_filter(imagePullPolicy="Always", imagePullSecret="registry")
    for values, wanted in (
        (image, {"url": VALUES["istio"]["filter"]["url"], "imagePullPolicy": "Always", "imagePullSecret": "registry"}),
        (with_filter(**FILE), FILE | {"imagePullPolicy": "IfNotPresent"}),
    ):  # fmt: skip
        for plugin in (o for o in render(values) if o["kind"] == "WasmPlugin"):
            spec = plugin["spec"]
            keys = {key for key in spec if key in ("url", "sha256") or key.startswith("imagePull")}
            assert {key: spec[key] for key in keys} == wanted
            assert spec["failStrategy"] == "FAIL_OPEN"
    assert VALUES["istio"]["filter"]["url"].endswith(DIGEST)


def test_workloads_are_selected_by_their_own_labels():
    """The filter and the relay's routes use the labels of the entry, or else `app`.

    Only named workloads are patched.
    """
    labels = {"app.kubernetes.io/name": "gate", "track": "canary"}
    values = with_filter(services=[{"service": "gate", "namespace": "shop", "edge": True, "labels": labels}])
    values["istio"]["routes"]["workloads"] = [
        {"service": "gate", "namespace": "shop", "labels": labels},
        {"service": "cart", "namespace": "shop"},
    ]
    found = render(values)
    assert all(o["spec"]["selector"] == {"matchLabels": labels} for o in found if o["kind"] == "WasmPlugin")
    selected = {
        o["metadata"]["name"]: o["spec"].get("workloadSelector") for o in found if o["kind"] == "EnvoyFilter"
    }
    assert selected == {
        "spillway": None,
        "spillway-routes-gate": {"labels": labels},
        "spillway-routes-cart": {"labels": {"app": "cart"}},
    }
    [whole] = find(found, "EnvoyFilter", "spillway")["spec"]["configPatches"]
    assert (whole["applyTo"], whole["patch"]["value"]["name"]) == ("CLUSTER", "spillway-collector")


def test_a_workload_outside_the_mesh_is_refused_by_name():
    """The relay would not let its sidecars in."""
    values = with_filter()
    values["istio"]["routes"]["workloads"] = [{"service": "gate", "namespace": "elsewhere"}]
    done = cluster_chart.helm("template", "r", str(cluster_chart.CHARTS / "spillway-cluster"), values=values)
    assert done.returncode != 0
    assert "'elsewhere' is not in istio.namespaces" in done.stderr


@pytest.mark.parametrize(
    "key, name", [("destinations", "'cart' is there twice"), ("workloads", "'shop/gate' is there twice")]
)
def test_what_would_be_two_objects_of_one_name_is_refused(key: str, name: str):
    """Of two clusters or EnvoyFilters with the same name the mesh keeps one without any notice."""
    values = with_filter()
    values["istio"]["routes"] |= {
        "workloads": [{"service": "gate", "namespace": "shop"}],
        "destinations": [{"service": "cart", "namespace": "shop", "port": 8080, "clusters": ["west"]}],
    }
    values["istio"]["routes"][key] *= 2
    done = cluster_chart.helm("template", "r", str(cluster_chart.CHARTS / "spillway-cluster"), values=values)
    assert done.returncode != 0
    assert f"istio.routes.{key}: {name}" in done.stderr


def test_prometheus_knows_which_services_should_send():
    """There is one series for each service with the filter.

    SpillwayFilterSilent compares it with the telemetry that arrives.
    """
    values = VALUES | {"monitoring": {"prometheusRules": True}}
    found = render(values)
    groups = {
        g["name"]: g["rules"] for g in find(found, "PrometheusRule", "spillway-cluster")["spec"]["groups"]
    }
    labels = {"cluster": "north", "service": "gate", "namespace": "shop"}
    assert groups["spillway-filter-expected"] == [
        {"record": "spillway_filter_expected", "expr": "vector(1)", "labels": labels}
    ]
