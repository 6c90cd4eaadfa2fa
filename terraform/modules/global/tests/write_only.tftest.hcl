# Needs Terraform 1.11 or OpenTofu 1.11.
mock_provider "kubernetes" {}
mock_provider "helm" {}

variables {
  chart           = { name = "infra/helm/spillway-global" }
  image_registry  = "registry.example"
  topology_yaml   = "clusters: []"
  public          = { trust = "authorities", ruleset_keys = "keys" }
  clusters        = ["a", "b"]
  nats_user_files = "../../../infra/nats/users"
  servers = {
    nats       = "nats.example:4222"
    kafka      = ["kafka.example:9093"]
    redis      = "redis.example:6379"
    clickhouse = "clickhouse.example:9440"
  }
  identity = {
    roles = {
      nats       = { optimizer = "p1", papa = "p2", publisher = "p3", operator = "p4" }
      kafka      = { admit = "p4a", exclusive = "p5", curves = "p6", graph = "p7", classify = "p8", topics = "p9" }
      redis      = { streams = "p10", optimizer = "p11", papa = "p12", publisher = "p13" }
      clickhouse = { migrate = "p14", streams = "p15", optimizer = "p16", publisher = "p17", analyst = "p18" }
    }
    signing_key = "k"
    nats_users  = { optimizer = "$2a$10$hash-of-p1", papa = "$2a$10$hash-of-p2", operator = "$2a$10$hash-of-p4", publisher = "$2a$10$hash-of-p3", relay-a = "$2a$10$hash-of-a", relay-b = "$2a$10$hash-of-b" }
    kafka_users = { exclusive = "p5", collector-a = "p20" }
    servers     = { nats = { certificate = "c", key = "k" } }
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
