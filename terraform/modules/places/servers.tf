# Bundled servers are called by the names of their Services: infra/helm/spillway-global/templates/bundled.
locals {
  namespace = var.global.namespace.name
  bundled   = [for name, server in var.global.values.bundled : name if server.enabled]
  services = {
    nats       = { name = "spillway-nats", port = 4222, pods = "*.spillway-nats.${local.namespace}.svc" }
    kafka      = { name = "spillway-kafka-kafka-bootstrap", port = 9093, pods = "*.spillway-kafka-kafka-brokers.${local.namespace}.svc" }
    redis      = { name = "spillway-redis", port = 6380, pods = null }
    clickhouse = { name = "clickhouse-spillway", port = 9440, pods = "*.${local.namespace}.svc.cluster.local" }
  }
  given = {
    nats       = compact([var.global.servers.nats])
    kafka      = compact(coalesce(var.global.servers.kafka, []))
    redis      = compact([var.global.servers.redis])
    clickhouse = compact([var.global.servers.clickhouse])
  }
  addresses = { for name, service in local.services : name =>
    length(local.given[name]) > 0 ? local.given[name] :
    contains(local.bundled, name) ? ["${service.name}.${local.namespace}.svc:${service.port}"] : []
  }
  # Of a bundled server: the addresses that the map gives, the Service's name, and the pods'.
  dns_names = { for name, service in local.services : name => distinct(compact(concat(
    [for address in local.given[name] : split(":", address)[0]],
    [service.name, "${service.name}.${local.namespace}.svc", service.pods],
  ))) if contains(local.bundled, name) }
  certificates = { for name in distinct(concat(keys(local.dns_names), keys(var.global.server_certificates))) : name => {
    dns_names  = try(coalescelist(var.global.server_certificates[name].dns_names), local.dns_names[name], [])
    generation = try(var.global.server_certificates[name].generation, "1")
    peer       = try(var.global.server_certificates[name].peer, null)
  } }
  missing = [for name, addresses in local.addresses : name if length(addresses) == 0]
  # Names of Services end at their cluster.
  unreachable = length(local.elsewhere) == 0 ? [] : [
    for name in ["nats", "kafka"] : name if length(local.given[name]) == 0 && contains(local.bundled, name)
  ]
}
