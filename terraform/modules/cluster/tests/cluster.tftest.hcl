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

run "every_secret_that_the_chart_refers_to_is_made" {
  assert {
    condition     = kubernetes_secret_v1.this["spillway-relay"].data["SPILLWAY_NATS_URL"] == "tls://relay-a:p1@nats.example:4222"
    error_message = "the relay's address holds its password and speaks TLS"
  }
  assert {
    condition     = kubernetes_secret_v1.this["spillway-collector"].data["kafka-password"] == "p2" && length(kubernetes_secret_v1.this) == 5
    error_message = "five Secrets"
  }
  assert {
    condition     = keys(kubernetes_config_map_v1.this) == ["spillway-endpoints", "spillway-ruleset-keys", "spillway-topology", "spillway-trust"]
    error_message = "four ConfigMaps"
  }
  assert {
    condition     = yamldecode(helm_release.this.values[0]).collector.kafka.brokers == "k0.example:9093,k1.example:9093" && !strcontains(helm_release.this.values[0], "p1")
    error_message = "the release knows addresses and no secret"
  }
}

run "an_agent_gets_its_certificate" {
  variables {
    identity = {
      relay     = { certificate = "c1", key = "k1" }
      collector = { certificate = "c2", key = "k2" }
      agent     = { certificate = "c4", key = "k4" }
      authority = "ca"
      issuer    = { certificate = "c3", key = "k3" }
      nats      = { user = "relay-a", password = "p1" }
      kafka     = { user = "collector-a", password = "p2" }
    }
  }
  assert {
    condition     = kubernetes_secret_v1.this["spillway-agent-tls"].data["tls.key"] == "k4" && kubernetes_secret_v1.this["spillway-agent-tls"].data["ca.crt"] == "ca" && kubernetes_secret_v1.this["spillway-agent-tls"].type == "kubernetes.io/tls"
    error_message = "the Secret that the chart's agent names"
  }
}

run "the_issuer_is_where_cert_manager_reads_it" {
  variables {
    issuer_namespace = "cert-manager"
  }
  assert {
    condition     = { for name, secret in kubernetes_secret_v1.this : name => secret.metadata[0].namespace if secret.metadata[0].namespace != "spillway" } == { spillway-issuer = "cert-manager" }
    error_message = "the authority of a ClusterIssuer, and no other Secret, is in cert-manager's namespace"
  }
}

run "existing_secrets_are_left_alone" {
  variables {
    identity = null
    public   = null
  }
  assert {
    condition     = length(kubernetes_secret_v1.this) == 0 && keys(kubernetes_config_map_v1.this) == ["spillway-endpoints", "spillway-topology"]
    error_message = "who brings Secrets gets none"
  }
}

run "an_address_holds_no_password" {
  command = plan
  variables {
    servers = { nats = "tls://user:word@nats.example:4222", kafka = [] }
    name    = "A b"
    chart   = { name = "spillway-cluster", wait_seconds = -1 }
  }
  expect_failures = [var.servers, var.name, var.chart]
}

run "a_managed_server_is_trusted_by_its_own_authorities" {
  variables {
    trust   = { kafka = "-----BEGIN CERTIFICATE-----\nof the provider", nats = "system" }
    servers = { nats = "nats.example:4223", kafka = ["kafka.example:9092"] }
  }
  assert {
    condition     = yamldecode(helm_release.this.values[0]).trust == { kafka = "kafka.crt", nats = "system" }
    error_message = "a key of the ConfigMap, or the images' root certificates"
  }
  assert {
    condition     = kubernetes_config_map_v1.this["spillway-trust"].data["kafka.crt"] == "-----BEGIN CERTIFICATE-----\nof the provider"
    error_message = "a provider's authorities are trusted for that server alone"
  }
  assert {
    condition     = yamldecode(helm_release.this.values[0]).networkPolicy.natsPorts == [4223]
    error_message = "the policy opens the port of the address, which is in a Secret"
  }
}
