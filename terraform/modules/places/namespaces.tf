terraform {
  required_version = ">= 1.8"
}

# Two parts in one namespace would make the same ConfigMaps and Secrets.
locals {
  parts = merge(
    { global = { kubernetes = var.global.kubernetes, namespace = var.global.namespace } },
    { for name, region in var.regions : "regions.${name}" => { kubernetes = region.kubernetes, namespace = region.namespace } },
  )
  cluster_of = { for part, place in local.parts : part => "context ${place.kubernetes.context} of ${place.kubernetes.kubeconfig}" }
  parts_at   = { for part, place in local.parts : "namespace ${place.namespace.name} of ${local.cluster_of[part]}" => part... }
  collisions = [for place, parts in local.parts_at : "${join(" and ", parts)} in ${place}" if length(parts) > 1]
  elsewhere  = [for part, cluster in local.cluster_of : part if cluster != local.cluster_of["global"]]
}
