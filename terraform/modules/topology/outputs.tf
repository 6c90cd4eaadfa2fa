output "topology" {
  description = "spillway.v1.Topology as an object: without drained clusters."
  value       = local.topologies[""]

  precondition {
    condition = alltrue(flatten([
      for placements in values(var.services) : [for cluster in keys(placements) : contains(keys(var.regions), cluster)]
    ]))
    error_message = "services: placed in a cluster that is not in `regions`; allowed: ${join(", ", keys(var.regions))}."
  }
}

output "yaml" {
  description = "The topology file's text, for the optimizer and the publisher."
  value       = yamlencode(local.topologies[""])
}

output "yaml_of" {
  description = "The topology file's text by cluster, for its relay: a drained cluster is in its own alone."
  value       = { for name in keys(var.regions) : name => yamlencode(local.topologies[name]) }
}

output "endpoints_of" {
  description = "The endpoints file's text by cluster (spillway.v1.Endpoints), for its relay."
  value       = { for name, endpoints in local.endpoints : name => yamlencode(endpoints) }
}

output "istio_of" {
  description = "Variable `istio` of modules/cluster by cluster: what the map says of the mesh, and lists that follow from placements. null: no Istio."
  value       = { for name in keys(var.regions) : name => try(local.istio[name], null) }

  precondition {
    condition     = length(local.mesh_problems) == 0
    error_message = join("\n", local.mesh_problems)
  }
}
