# What follows from the map for a cluster of an Istio mesh. "" and 0 stand for what the map leaves open; problems name it.
locals {
  mesh = { for name, given in var.istio : name => {
    trust_domain = try(given.trust_domain, "cluster.local")
    namespaces   = try(given.namespaces, var.regions[name].namespaces, [])
    root         = try(given.root, null)
    filter       = try(given.filter, null)
    route_ports  = try(given.route_ports, [])
    callers      = try(given.callers, [])
  } if given != false }

  # A region's own pods are found at their routes' port.
  port_of = { for name, region in var.regions : name =>
    region.port != null ? region.port : try(coalesce(tostring(one(local.mesh[name].route_ports))), "15006")
  }

  # Cluster -> service -> its namespace there.
  placed = { for name, mesh in local.mesh : name => {
    for service, placements in var.services : service => try(coalesce(placements[name].namespace), coalesce(one(mesh.namespaces)), "")
    if contains(keys(placements), name)
  } }

  # Cluster -> where calls of its sidecars at its route ports may go. Other ports stay Istio's.
  calls = { for name, mesh in local.mesh : name => [
    for call in flatten([for service, placements in var.services : [
      for cluster, placement in placements : {
        service      = service
        cluster      = cluster
        namespace    = try(local.placed[cluster][service], "")
        trust_domain = try(local.mesh[cluster].trust_domain, "")
        port         = placement.port != null ? placement.port : try(one(mesh.route_ports), 0)
      } if contains(try(local.members[name], []), cluster)
    ]]) : call if call.port == 0 || contains(mesh.route_ports, call.port)
  ] if length(mesh.route_ports) > 0 }

  destinations = { for name, calls in local.calls : name => [
    for alike in values({ for call in calls : "${call.service} ${call.namespace} ${call.port}" => call... }) : {
      service   = alike[0].service
      namespace = alike[0].namespace
      port      = alike[0].port
      clusters  = [for call in alike : call.cluster]
    }
  ] }

  istio = { for name, mesh in local.mesh : name => {
    trust_domain = mesh.trust_domain
    namespaces   = mesh.namespaces
    root         = mesh.root
    filter = mesh.filter == null ? null : {
      url      = mesh.filter.url
      sha256   = try(mesh.filter.sha256, null)
      services = [for service, namespace in local.placed[name] : { service = service, namespace = namespace, edge = contains(mesh.filter.edges, service) }]
    }
    routes = {
      ports        = mesh.route_ports
      workloads    = [for service in mesh.callers : { service = service, namespace = try(local.placed[name][service], "") }]
      destinations = try(local.destinations[name], [])
    }
  } }
}
