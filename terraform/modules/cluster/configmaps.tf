# Files that relays and collectors read again when they change: outside the release, so that no pod restarts.
locals {
  # Of servers that have authorities of their own.
  authorities = { for server, from in var.trust : "${server}.crt" => from if startswith(from, "-----BEGIN") }
  files = merge(
    {
      spillway-topology  = { "topology.yaml" = var.topology.topology_yaml }
      spillway-endpoints = { "endpoints.yaml" = var.topology.endpoints_yaml }
    },
    var.public == null ? {} : {
      spillway-trust        = merge({ "ca.crt" = var.public.trust }, local.authorities)
      spillway-ruleset-keys = { "keys.pem" = var.public.ruleset_keys }
    },
    local.istio_files,
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
