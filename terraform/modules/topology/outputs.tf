output "topology" {
  description = "spillway.v1.Topology as an object."
  value       = local.topology

  precondition {
    condition = alltrue(flatten([
      for placements in values(var.services) : [for cluster in keys(placements) : contains(keys(var.regions), cluster)]
    ]))
    error_message = "services: placed in a cluster that is not in `regions`; allowed: ${join(", ", keys(var.regions))}."
  }
}

output "yaml" {
  description = "The topology file's text."
  value       = yamlencode(local.topology)
}
