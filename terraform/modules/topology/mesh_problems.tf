# Each names the key of the map, what is wrong with it, and what is allowed.
locals {
  mesh_problems = concat(
    [for name in keys(local.mesh) : "istio: ${name} is no region; there are: ${join(", ", keys(var.regions))}" if !contains(keys(var.regions), name)],
    [for name, mesh in local.mesh :
      "regions.${name}.istio.namespaces: empty, and regions.${name}.namespaces, too; name those whose sidecars may reach Spillway"
      if length(mesh.namespaces) == 0
    ],
    flatten([for name, services in local.placed : [for service, namespace in services :
      "services.${service}.${name}.namespace: ${namespace == "" ? "not set" : namespace}; allowed: ${join(", ", local.mesh[name].namespaces)} (regions.${name}.istio.namespaces)"
      if !contains(local.mesh[name].namespaces, namespace)
    ] if local.mesh[name].filter != null || length(local.calls) > 0]),
    flatten([for name, mesh in local.mesh : [for edge in mesh.filter.edges :
      "regions.${name}.istio.filter.edges: ${edge} is not placed in ${name}; allowed: ${join(", ", keys(local.placed[name]))}"
      if !contains(keys(local.placed[name]), edge)
    ] if mesh.filter != null]),
    flatten([for name, mesh in local.mesh : [for caller in mesh.callers :
      "regions.${name}.istio.callers: ${caller} is not placed in ${name}; allowed: ${join(", ", keys(local.placed[name]))}"
      if !contains(keys(local.placed[name]), caller)
    ]]),
    flatten([for name, calls in local.calls : [for call in calls :
      "services.${call.service}.${call.cluster}: regions.${name}.istio.route_ports leads calls there, and regions.${call.cluster} has no `istio` of trust domain ${local.mesh[name].trust_domain}; give it one, or leave route_ports of ${name} empty"
      if call.trust_domain != local.mesh[name].trust_domain
    ]]),
    flatten([for name, calls in local.calls : [for call in calls :
      "services.${call.service}.${call.cluster}.port: not set; needed with several regions.${name}.istio.route_ports: ${join(", ", local.mesh[name].route_ports)}, or another that stays Istio's"
      if call.port == 0
    ]]),
    [for name, mesh in local.mesh :
      "regions.${name}.port: not set; needed with several regions.${name}.istio.route_ports: the name of the pods' port in their Services, for example http"
      if length(mesh.route_ports) > 1 && try(var.regions[name].port, null) == null
    ],
  )
}
