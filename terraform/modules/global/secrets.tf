# One Secret per workload, with the variables that its process reads. The chart refers to these by name and makes none.
locals {
  # Programs without write-only arguments refuse them even while variables are unknown, so null must be known there: a function
  # that came with them tells programs apart (not Terraform 1.10, which has the function alone).
  write_only_known = can(ephemeralasnull(null))

  given = nonsensitive(var.identity != null)
  roles = local.given ? var.identity.roles : {}

  clickhouse = { for role, password in try(local.roles.clickhouse, {}) : role => {
    SPILLWAY_CLICKHOUSE_URL = "clickhouses://${role}:${password}@${var.servers.clickhouse}/${var.servers.database}"
  } }
  redis = { for role, password in try(local.roles.redis, {}) : role => {
    SPILLWAY_REDIS_URL = "rediss://${role}:${password}@${var.servers.redis}"
  } }
  nats = { for role, password in try(local.roles.nats, {}) : role => {
    SPILLWAY_NATS_URL = "tls://${role}:${password}@${var.servers.nats}"
  } }
  kafka = { for role, password in try(local.roles.kafka, {}) : role => {
    SPILLWAY_KAFKA_SASL_USER = role
    kafka-password           = password
  } }

  secrets = !local.given ? {} : merge(
    { for job in ["exclusive", "curves", "graph", "classify"] :
      "spillway-${job}" => tomap(merge(local.clickhouse["streams"], local.redis["streams"], local.kafka[job]))
    },
    {
      spillway-topics    = tomap(local.kafka["topics"])
      spillway-admit     = tomap(local.kafka["admit"])
      spillway-migrate   = tomap(local.clickhouse["migrate"])
      spillway-optimizer = tomap(merge(local.clickhouse["optimizer"], local.redis["optimizer"], local.nats["optimizer"]))
      spillway-papa      = tomap(merge(local.clickhouse["optimizer"], local.redis["papa"], local.nats["papa"]))
      spillway-publisher = tomap(merge(local.clickhouse["publisher"], local.redis["publisher"], local.nats["publisher"]))
      # People's: commands of the operator, questions of the analyst. No workload of the chart has it.
      spillway-operator    = tomap(merge(local.clickhouse["analyst"], local.nats["operator"]))
      spillway-signing-key = tomap({ "signing.key" = var.identity.signing_key })
    },
    {
      # What brokers and servers are told: a key per user. Strimzi's KafkaUser and Altinity's operator can name it.
      spillway-kafka-users      = tomap(var.identity.kafka_users)
      spillway-clickhouse-users = tomap({ for role, password in local.roles.clickhouse : role => sha256(password) })
    },
    var.redis_user_file == null ? {} : { spillway-redis-users = tomap({ "users.acl" = local.users_acl }) },
    var.nats_user_files == null ? {} : { spillway-nats-users = tomap({ "users.conf" = local.users_conf }) },
    # Without `public` the output `secrets` says what is missing.
    { for name in local.server_names : "spillway-${name}-tls" => tomap({
      "tls.crt" = var.identity.servers[name].certificate
      "tls.key" = var.identity.servers[name].key
      "ca.crt"  = var.public == null ? "" : var.public.trust
    }) },
  )
  server_names = !local.given ? [] : nonsensitive(keys(var.identity.servers))
  workloads    = ["admit", "exclusive", "curves", "graph", "classify", "topics", "migrate", "optimizer", "papa", "publisher"]
  names = !local.given ? [] : concat(
    [for workload in local.workloads : "spillway-${workload}"],
    ["spillway-operator", "spillway-signing-key", "spillway-kafka-users", "spillway-clickhouse-users"],
    var.redis_user_file == null ? [] : ["spillway-redis-users"],
    var.nats_user_files == null ? [] : ["spillway-nats-users"],
    [for name in local.server_names : "spillway-${name}-tls"],
  )
  # 28 bits of a hash: another content, another revision; nobody guesses 40 random characters from them.
  revisions = { for name in local.names : name => nonsensitive(1 + parseint(substr(sha256(jsonencode(local.secrets[name])), 0, 7), 16)) }
}

resource "kubernetes_secret_v1" "this" {
  for_each = toset(local.names)

  metadata {
    name      = each.key
    namespace = local.namespace
    labels    = local.labels
  }
  type             = endswith(each.key, "-tls") ? "kubernetes.io/tls" : "Opaque"
  data             = var.write_only_secrets ? null : local.secrets[each.key]
  data_wo          = local.write_only_known ? (var.write_only_secrets ? local.secrets[each.key] : null) : null
  data_wo_revision = local.write_only_known ? (var.write_only_secrets ? local.revisions[each.key] : null) : null
}
