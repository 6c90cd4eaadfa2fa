variable "istio" {
  description = "Clusters of an Istio mesh: `true`, or an object. `trust_domain` of the mesh (cluster.local). `namespaces` whose sidecars may reach relay and collector (those of the region). `root`: PEM of the mesh's root; not set, modules/cluster reads it from the cluster. `filter` measures: `url` of the module, `sha256` where the chart wants it, and `edges`, the services that users call. `route_ports` and `callers` enforce: calls of these services at these ports go by the relay's routes. false: no Istio."
  type        = any
  default     = {}
  nullable    = false

  validation {
    condition = alltrue([
      for given in values(var.istio) : can(tobool(given)) ? tobool(given) != null :
      length(setsubtract(try(keys(given), ["?"]), ["trust_domain", "namespaces", "root", "filter", "route_ports", "callers"])) == 0
    ])
    error_message = "regions.*.istio: allowed: true, false, or an object of trust_domain, namespaces, root, filter, route_ports, callers. There are: ${join("; ", [for name, given in var.istio : "${name}: ${try(join(", ", keys(given)), jsonencode(given))}"])}."
  }

  validation {
    condition     = alltrue([for given in values(var.istio) : !can(given.trust_domain) || can(regex("^[a-z0-9._-]+$", given.trust_domain))])
    error_message = "regions.*.istio.trust_domain: small letters, digits, '.', '_' and '-', as in `meshConfig.trustDomain`."
  }

  validation {
    condition = alltrue([for given in values(var.istio) :
      try(alltrue([for name in given.namespaces : can(regex("^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", name))]), !can(given.namespaces))
    ])
    error_message = "regions.*.istio.namespaces: a list of names of namespaces."
  }

  validation {
    condition     = alltrue([for given in values(var.istio) : !can(given.root) || can(regex("^-----BEGIN CERTIFICATE-----", given.root))])
    error_message = "regions.*.istio.root: certificates as PEM. Not set, they are read from ConfigMap istio-ca-root-cert."
  }

  validation {
    condition = alltrue([for given in values(var.istio) :
      try(alltrue([for port in given.route_ports : port == floor(port) && port >= 1 && port <= 65535]), !can(given.route_ports))
    ])
    error_message = "regions.*.istio.route_ports: a list of whole numbers from 1 to 65535."
  }

  validation {
    condition = alltrue([for given in values(var.istio) : !can(given.filter) || alltrue([
      try(length(setsubtract(keys(given.filter), ["url", "sha256", "edges"])) == 0, false),
      can(regex("^(oci|https?)://.", given.filter.url)),
      !can(given.filter.sha256) || can(regex("^[0-9a-f]{64}$", given.filter.sha256)),
      can([for edge in given.filter.edges : edge]),
    ])])
    error_message = "regions.*.istio.filter: needs `url` (oci:// or https://) and `edges`, a list of the services that users call, [] where there are none; may have `sha256`, 64 hexadecimal digits. Other keys of the chart's istio.filter go into `values`."
  }

  validation {
    condition = alltrue([for given in values(var.istio) :
      try(alltrue([for name in given.callers : can(regex("^[a-z0-9]", name))]), !can(given.callers)) && can(given.callers) == can(given.route_ports)
    ])
    error_message = "regions.*.istio.callers: a list of services whose calls go by the relay's routes; needed with `route_ports`, and only with it. Begin with one."
  }
}
