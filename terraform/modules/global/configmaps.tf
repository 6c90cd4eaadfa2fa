# Files that workloads read again when they change: outside the release, so that no pod restarts.
locals {
  files = merge(
    { spillway-topology = { "topology.yaml" = var.topology_yaml } },
    var.public == null ? {} : {
      spillway-trust        = { "ca.crt" = var.public.trust }
      spillway-ruleset-keys = { "keys.pem" = var.public.ruleset_keys }
    },
  )
}

resource "kubernetes_config_map_v1" "this" {
  for_each = local.files

  metadata {
    name      = each.key
    namespace = local.namespace
    labels    = local.labels
  }
  data = each.value
}
