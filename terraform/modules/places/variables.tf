variable "global" {
  description = "Entry `global` of the map. `namespace`: as in modules/global. `servers` and `server_certificates`: what they lack follows from the namespace, for servers that `values.bundled` enables."
  type = object({
    kubernetes = object({ kubeconfig = string, context = string })
    namespace = optional(object({
      name   = optional(string, "spillway")
      create = optional(bool, true)
      labels = optional(map(string), {})
    }), {})
    servers = optional(object({
      nats       = optional(string)
      kafka      = optional(list(string))
      redis      = optional(string)
      clickhouse = optional(string)
      database   = optional(string, "spillway")
    }), {})
    server_certificates = optional(map(object({
      dns_names  = optional(list(string))
      generation = optional(string, "1")
      peer       = optional(bool)
    })), {})
    values = optional(object({ bundled = optional(map(object({ enabled = optional(bool, false) })), {}) }), {})
  })

  validation {
    condition     = can(regex("^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", var.global.namespace.name))
    error_message = "global.namespace.name: ${var.global.namespace.name}; allowed: small letters, digits and '-', at most 63."
  }
}

variable "regions" {
  description = "Entry `regions` of the map: how each cluster is reached, and the namespace of its part, as in modules/cluster."
  type = map(object({
    kubernetes = object({ kubeconfig = string, context = string })
    namespace = optional(object({
      name   = optional(string, "spillway")
      create = optional(bool, true)
      labels = optional(map(string), {})
    }), {})
  }))

  validation {
    condition = alltrue([
      for region in values(var.regions) : can(regex("^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", region.namespace.name))
    ])
    error_message = "regions.*.namespace.name: small letters, digits and '-', at most 63; there are: ${join(", ", [for region in values(var.regions) : region.namespace.name])}."
  }
}
