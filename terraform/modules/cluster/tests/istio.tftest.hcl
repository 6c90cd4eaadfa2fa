mock_provider "kubernetes" {
  mock_data "kubernetes_config_map_v1" {
    defaults = { data = { "root-cert.pem" = "-----BEGIN CERTIFICATE-----\nof the cluster\n" } }
  }
}
mock_provider "helm" {}

variables {
  name           = "a"
  chart          = { name = "infra/helm/spillway-cluster" }
  image_registry = "registry.example"
  topology       = { topology_yaml = "clusters: []", endpoints_yaml = "cluster: a" }
  servers        = { nats = "nats.example:4222", kafka = ["kafka.example:9093"] }
  public         = { trust = "authorities", ruleset_keys = "keys" }
  values         = ["istio: {trustDomain: mine.example}"]
  identity = {
    relay     = { certificate = "c1", key = "k1" }
    collector = { certificate = "c2", key = "k2" }
    authority = "own authority\n"
    issuer    = { certificate = "c3", key = "k3" }
    nats      = { user = "relay-a", password = "p1" }
    kafka     = { user = "collector-a", password = "p2" }
  }
  istio = {
    trust_domain = "mesh.example"
    namespaces   = ["shop", "books"]
    filter       = { url = "oci://registry.example/filter:1", sha256 = "00", services = [{ service = "gate", namespace = "shop", edge = true }] }
    routes       = { ports = [8080], destinations = [{ service = "gate", namespace = "shop", port = 8080, clusters = ["a", "b"] }] }
  }
}

run "the_chart_gets_what_the_map_says_of_the_mesh" {
  assert {
    condition     = yamldecode(helm_release.this.values[1]).istio.enabled && yamldecode(helm_release.this.values[1]).istio.namespaces[1] == "books" && yamldecode(helm_release.this.values[1]).istio.relayAuthority == "own authority\n"
    error_message = "sidecars know relay and collector by the cluster's own authority"
  }
  assert {
    condition     = yamldecode(helm_release.this.values[1]).istio.routes.destinations[0].clusters[1] == "b" && yamldecode(helm_release.this.values[1]).istio.filter.services[0].edge
    error_message = "destinations and services of the filter are those of the map"
  }
  assert {
    condition     = helm_release.this.values[2] == "istio: {trustDomain: mine.example}"
    error_message = "an explicit value comes later, so it counts"
  }
}

run "relay_and_collector_trust_the_mesh_and_their_own_cluster" {
  assert {
    condition     = kubernetes_config_map_v1.this["spillway-mesh-authorities"].data["ca.crt"] == "-----BEGIN CERTIFICATE-----\nof the cluster\nown authority\n"
    error_message = "the root that the cluster has, and the cluster's own authority"
  }
  assert {
    condition     = data.kubernetes_config_map_v1.mesh_root[0].metadata[0].name == "istio-ca-root-cert" && data.kubernetes_config_map_v1.mesh_root[0].metadata[0].namespace == "shop"
    error_message = "Istio's own ConfigMap, where sidecars have it"
  }
}

run "a_root_that_is_given_is_not_read" {
  variables {
    istio = { namespaces = ["shop"], root = "-----BEGIN CERTIFICATE-----\nof the map" }
  }
  assert {
    condition     = kubernetes_config_map_v1.this["spillway-mesh-authorities"].data["ca.crt"] == "-----BEGIN CERTIFICATE-----\nof the map\nown authority\n" && length(data.kubernetes_config_map_v1.mesh_root) == 0
    error_message = "the root of the map"
  }
  assert {
    condition     = yamldecode(helm_release.this.values[1]).istio.trustDomain == "cluster.local" && !can(yamldecode(helm_release.this.values[1]).istio.filter)
    error_message = "what is not said stays the chart's"
  }
}

run "without_istio_there_is_nothing_of_it" {
  variables {
    istio = null
  }
  assert {
    condition     = length(helm_release.this.values) == 2 && !contains(keys(kubernetes_config_map_v1.this), "spillway-mesh-authorities") && length(data.kubernetes_config_map_v1.mesh_root) == 0
    error_message = "no value, no ConfigMap, nothing read"
  }
}

run "existing_secrets_are_left_alone" {
  variables {
    identity = null
    public   = null
  }
  assert {
    condition     = !contains(keys(kubernetes_config_map_v1.this), "spillway-mesh-authorities") && length(data.kubernetes_config_map_v1.mesh_root) == 0 && !can(yamldecode(helm_release.this.values[1]).istio.relayAuthority)
    error_message = "who brings Secrets brings the authorities, too"
  }
}

run "a_mesh_has_namespaces" {
  command = plan
  variables {
    istio = { namespaces = [] }
  }
  expect_failures = [var.istio]
}
