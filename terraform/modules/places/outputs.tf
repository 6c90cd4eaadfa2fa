output "namespaces" {
  description = "Variable `namespace` of modules/global (`global`) and of modules/cluster by region (`regions`)."
  value = {
    global  = var.global.namespace
    regions = { for name, region in var.regions : name => region.namespace }
  }

  precondition {
    condition     = length(local.collisions) == 0
    error_message = "namespace: ${join("; ", local.collisions)}. Both would make the same ConfigMaps and Secrets. Give one of them another namespace, for example `global: {namespace: {name: spillway-global}}`."
  }
}

output "servers" {
  description = "Variable `servers` of modules/global; modules/cluster takes `nats` and `kafka` of it."
  value = {
    nats       = try(local.addresses.nats[0], null)
    kafka      = local.addresses.kafka
    redis      = try(local.addresses.redis[0], null)
    clickhouse = try(local.addresses.clickhouse[0], null)
    database   = var.global.servers.database
  }

  precondition {
    condition     = length(local.missing) == 0
    error_message = "global.servers: no address of ${join(", ", local.missing)}. Allowed: host:port (a list for kafka), or nothing where `global.values.bundled.<name>.enabled` is true."
  }

  precondition {
    condition     = length(local.unreachable) == 0
    error_message = "global.servers: no address of ${join(", ", local.unreachable)}, and ${join(", ", local.elsewhere)}: in another cluster, where the bundled server's Service has no name. Enable `external` of `global.values.bundled.<name>`, and set the address that it gets."
  }
}

output "certificates" {
  description = "Variable `servers.certificates` of modules/identity."
  value       = local.certificates
}
