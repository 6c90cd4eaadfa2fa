# The cluster has no root of a mesh.
mock_provider "kubernetes" {
  mock_data "kubernetes_config_map_v1" {
    defaults = { data = {} }
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
  identity = {
    relay     = { certificate = "c1", key = "k1" }
    collector = { certificate = "c2", key = "k2" }
    authority = "own authority\n"
    issuer    = { certificate = "c3", key = "k3" }
    nats      = { user = "relay-a", password = "p1" }
    kafka     = { user = "collector-a", password = "p2" }
  }
  istio = { namespaces = ["shop"] }
}

run "a_cluster_without_the_meshs_root_is_refused" {
  command         = plan
  expect_failures = [data.kubernetes_config_map_v1.mesh_root]
}
