# Where each cluster finds every service: its own pods by its own API server, the others' by their entry.
locals {
  endpoints = {
    for name, region in var.regions : name => {
      cluster = name
      services = flatten([
        for service, placements in var.services : [
          for cluster in keys(placements) : {
            service = service
            cluster = cluster
            names   = ["${service}.${var.regions[cluster].entry.domain}:${var.regions[cluster].entry.port}"]
          } if cluster != name && contains(local.members[name], cluster) && try(var.regions[cluster].entry, null) != null
        ]
      ])
      kubernetes = length(region.namespaces) == 0 ? [] : [
        { cluster = name, namespaces = region.namespaces, port = local.port_of[name] }
      ]
    }
  }
}
