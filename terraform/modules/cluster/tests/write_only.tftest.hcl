# Needs Terraform 1.11 or OpenTofu 1.11.
mock_provider "kubernetes" {}
mock_provider "helm" {}

variables {
  name           = "a"
  chart          = { name = "infra/helm/spillway-cluster" }
  image_registry = "registry.example"
  topology       = { topology_yaml = "clusters: []", endpoints_yaml = "cluster: a" }
  servers        = { nats = "nats.example:4222", kafka = ["k0.example:9093", "k1.example:9093"] }
  public         = { trust = "authorities", ruleset_keys = "keys" }
  identity = {
    relay     = { certificate = "c1", key = "k1" }
    collector = { certificate = "c2", key = "k2" }
    authority = "ca"
    issuer    = { certificate = "c3", key = "k3" }
    nats      = { user = "relay-a", password = "p1" }
    kafka     = { user = "collector-a", password = "p2" }
  }
}

run "nothing_of_a_written_secret_stays_in_the_state" {
  variables {
    write_only_secrets = true
  }
  assert {
    condition     = alltrue([for secret in values(kubernetes_secret_v1.this) : !strcontains(jsonencode(secret.data), "p1") && secret.data_wo_revision > 0])
    error_message = "data is in the state"
  }
}
