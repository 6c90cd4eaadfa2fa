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

run "every_workload_has_its_own_secret" {
  assert {
    condition     = kubernetes_secret_v1.this["spillway-curves"].data["SPILLWAY_CLICKHOUSE_URL"] == "clickhouses://streams:p15@clickhouse.example:9440/spillway" && kubernetes_secret_v1.this["spillway-curves"].data["kafka-password"] == "p6"
    error_message = "curves: its own Kafka user, the streams' ClickHouse user"
  }
  assert {
    condition     = keys(kubernetes_secret_v1.this["spillway-topics"].data) == tolist(["SPILLWAY_KAFKA_SASL_USER", "kafka-password"]) && keys(kubernetes_secret_v1.this["spillway-migrate"].data) == tolist(["SPILLWAY_CLICKHOUSE_URL"])
    error_message = "a job has what it needs, and no more"
  }
  assert {
    condition     = kubernetes_secret_v1.this["spillway-publisher"].data["SPILLWAY_NATS_URL"] == "tls://publisher:p3@nats.example:4222" && kubernetes_secret_v1.this["spillway-publisher"].data["SPILLWAY_REDIS_URL"] == "rediss://publisher:p13@redis.example:6379"
    error_message = "publisher"
  }
  assert {
    condition     = !can(regex("p[0-9]+[@\"]", join("", helm_release.this.values)))
    error_message = "the release knows no secret"
  }
}

run "the_bus_knows_each_clusters_relay_by_a_hash" {
  assert {
    condition     = strcontains(kubernetes_secret_v1.this["spillway-nats-users"].data["users.conf"], "user: \"relay-a\", password: \"$2a$10$hash-of-a\"") && strcontains(kubernetes_secret_v1.this["spillway-nats-users"].data["users.conf"], "spillway.acks.b")
    error_message = "a user per cluster, with its own subjects"
  }
  assert {
    condition     = !can(regex("@|password: \\$", kubernetes_secret_v1.this["spillway-nats-users"].data["users.conf"]))
    error_message = "a placeholder is left"
  }
}

run "redis_and_clickhouse_know_passwords_by_their_sums" {
  variables {
    redis_user_file = "tests/users.acl"
  }
  assert {
    condition     = kubernetes_secret_v1.this["spillway-redis-users"].data["users.acl"] == "user default off\nuser streams on #${sha256("p10")} resetchannels ~a -@all +get\n"
    error_message = "a line per user, no comment, and no other user"
  }
  assert {
    condition     = kubernetes_secret_v1.this["spillway-clickhouse-users"].data["analyst"] == sha256("p18")
    error_message = "analyst"
  }
}

run "a_bus_user_without_a_password_is_refused" {
  command = plan
  variables {
    clusters = ["a", "b", "c"]
  }
  expect_failures = [output.secrets]
}

run "existing_secrets_are_left_alone" {
  variables {
    identity = null
    public   = null
  }
  assert {
    condition     = length(kubernetes_secret_v1.this) == 0 && keys(kubernetes_config_map_v1.this) == ["spillway-topology"]
    error_message = "who brings Secrets gets none"
  }
}

run "an_address_holds_no_password" {
  command = plan
  variables {
    servers = { nats = "tls://nats.example:4222", kafka = [], redis = "r:1", clickhouse = "c:1" }
  }
  expect_failures = [var.servers]
}

run "no_clusters_are_refused_before_anything_is_made" {
  command = plan
  variables {
    clusters = []
  }
  expect_failures = [var.clusters]
}

run "a_managed_server_is_trusted_by_its_own_authorities" {
  variables {
    trust = { kafka = "system", redis = "-----BEGIN CERTIFICATE-----\nof the provider" }
    servers = {
      nats       = "nats.example:4223"
      kafka      = ["kafka.example:9092"]
      redis      = "redis.example:25061"
      clickhouse = "clickhouse.example:9440"
    }
  }
  assert {
    condition     = yamldecode(helm_release.this.values[0]).trust == { kafka = "system", redis = "redis.crt" }
    error_message = "others keep the chart's default, the ConfigMap's ca.crt"
  }
  assert {
    condition     = kubernetes_config_map_v1.this["spillway-trust"].data == tomap({ "ca.crt" = "authorities", "redis.crt" = "-----BEGIN CERTIFICATE-----\nof the provider" })
    error_message = "a provider's authorities are trusted for that server alone"
  }
  assert {
    condition     = { for server, policy in yamldecode(helm_release.this.values[0]).networkPolicy : server => policy.ports } == { clickhouse = [9440], nats = [4223], redis = [25061] }
    error_message = "policies open the ports of the addresses, which are in Secrets; the chart knows Kafka's"
  }
}

run "trust_is_of_known_servers" {
  command = plan
  variables {
    trust = { kafak = "system" }
  }
  expect_failures = [var.trust]
}

run "trust_is_no_path" {
  command = plan
  variables {
    trust = { kafka = "/etc/ssl/kafka.pem" }
  }
  expect_failures = [var.trust]
}

run "a_providers_authorities_need_the_modules_own_configmap" {
  command = plan
  variables {
    public   = null
    identity = null
    trust    = { redis = "-----BEGIN CERTIFICATE-----\nof the provider" }
  }
  expect_failures = [output.secrets]
}

run "a_servers_secret_needs_the_authorities" {
  command = plan
  variables {
    public = null
  }
  expect_failures = [output.secrets]
}
