# What the relay, the collector and the agent show and prove with. The chart refers to these by name and makes none.
locals {
  # Programs without write-only arguments refuse them even while variables are unknown, so null must be known there: a function
  # that came with them tells programs apart (not Terraform 1.10, which has the function alone).
  write_only_known = can(ephemeralasnull(null))

  given = nonsensitive(var.identity != null)
  agent = nonsensitive(try(var.identity.agent, null) != null)
  secrets = !local.given ? {} : merge(
    {
      spillway-relay = tomap({
        SPILLWAY_NATS_URL = "tls://${var.identity.nats.user}:${var.identity.nats.password}@${var.servers.nats}"
      })
      spillway-collector = tomap({
        SPILLWAY_KAFKA_SASL_USER = var.identity.kafka.user
        kafka-password           = var.identity.kafka.password
      })
      spillway-relay-tls = tomap({
        "tls.crt" = var.identity.relay.certificate
        "tls.key" = var.identity.relay.key
        "ca.crt"  = var.identity.authority
      })
      spillway-collector-tls = tomap({
        "tls.crt" = var.identity.collector.certificate
        "tls.key" = var.identity.collector.key
        "ca.crt"  = var.identity.authority
      })
    },
    local.agent ? {
      spillway-agent-tls = tomap({
        "tls.crt" = var.identity.agent.certificate
        "tls.key" = var.identity.agent.key
        "ca.crt"  = var.identity.authority
      })
    } : {},
    var.issuer_secret ? {
      spillway-issuer = tomap({
        "tls.crt" = var.identity.issuer.certificate
        "tls.key" = var.identity.issuer.key
        "ca.crt"  = var.identity.authority
      })
    } : {},
  )
  names = !local.given ? [] : concat(
    ["spillway-relay", "spillway-collector", "spillway-relay-tls", "spillway-collector-tls"],
    local.agent ? ["spillway-agent-tls"] : [],
    var.issuer_secret ? ["spillway-issuer"] : [],
  )
  # 28 bits of a hash: another content, another revision; nobody guesses 40 random characters from them.
  revisions = { for name in local.names : name => nonsensitive(1 + parseint(substr(sha256(jsonencode(local.secrets[name])), 0, 7), 16)) }
}

resource "kubernetes_secret_v1" "this" {
  for_each = toset(local.names)

  metadata {
    name      = each.key
    namespace = each.key == "spillway-issuer" ? coalesce(var.issuer_namespace, local.namespace) : local.namespace
    labels    = local.labels
  }
  type             = contains(["spillway-relay", "spillway-collector"], each.key) ? "Opaque" : "kubernetes.io/tls"
  data             = var.write_only_secrets ? null : local.secrets[each.key]
  data_wo          = local.write_only_known ? (var.write_only_secrets ? local.secrets[each.key] : null) : null
  data_wo_revision = local.write_only_known ? (var.write_only_secrets ? local.revisions[each.key] : null) : null
}
