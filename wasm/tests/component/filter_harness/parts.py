"""Parts of Envoy's configuration that the component tests and the benchmark share."""

TYPES = "type.googleapis.com/envoy.extensions"
LIMITS = ("max_connections", "max_pending_requests", "max_requests")


def address(port: int) -> dict:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def cluster(name: str, port: int, http2: bool = False) -> dict:
    """Returns a cluster with one local endpoint and limits too high for any test or benchmark."""
    endpoint = {"endpoint": {"address": address(port)}}
    out = {
        "name": name,
        "connect_timeout": "1s",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]},
        "circuit_breakers": {"thresholds": [dict.fromkeys(LIMITS, 65536)]},
    }
    if http2:
        options = {"@type": f"{TYPES}.upstreams.http.v3.HttpProtocolOptions"}
        options["explicit_http_config"] = {"http2_protocol_options": {}}
        name = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
        out["typed_extension_protocol_options"] = {name: options}
    return out


def class_route(name: str, action: dict, metadata: dict) -> dict:
    """Returns the route of the class `<service> <method> <template>`, as the relay serves it."""
    _, method, template = name.split(" ")
    config = {
        "@type": f"{TYPES}.path.match.uri_template.v3.UriTemplateMatchConfig",
        "path_template": template,
    }
    matcher = "envoy.path.match.uri_template.uri_template_matcher"
    match = {
        "path_match_policy": {"name": matcher, "typed_config": config},
        "headers": [{"name": ":method", "string_match": {"exact": method}}],
    }
    return {"name": name, "match": match, "route": action, "metadata": metadata}
