variable "regions" {
  description = "Clusters by name. Links are directed: `links` of a region lead from it to others, with `both_ways` also back, at the same price. A `drained` cluster stays deployed, but the others' topology is without it. `entry` is where other clusters find its services, `<service>.<domain>:<port>`; `namespaces` are those whose EndpointSlices its own relay reads, at `port`: a port's name there, or a number; not set: the single route port of `istio`, else 15006."
  type = map(object({
    region  = string
    drained = optional(bool, false)
    links = optional(map(object({
      rtt_ms            = number
      egress_usd_per_gb = optional(number, 0)
      both_ways         = optional(bool, false)
    })), {})
    entry      = optional(object({ domain = string, port = number }))
    namespaces = optional(list(string), [])
    port       = optional(string)
  }))

  validation {
    condition     = length(var.regions) > 0
    error_message = "regions: at least one cluster is needed."
  }

  validation {
    condition     = length(var.regions) == 0 || !alltrue([for region in values(var.regions) : region.drained])
    error_message = "regions: all are drained; at least one takes traffic."
  }

  validation {
    condition     = alltrue([for region in values(var.regions) : length(region.region) > 0])
    error_message = "regions.*.region: the region's name at its provider, for example us-west."
  }

  validation {
    condition = alltrue([
      for region in values(var.regions) : region.entry == null ? true : (
        can(regex("^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", region.entry.domain)) && region.entry.port == floor(region.entry.port) && region.entry.port >= 1 && region.entry.port <= 65535
      )
    ])
    error_message = "regions.*.entry: `domain` is a domain name without scheme, `port` a whole number from 1 to 65535."
  }

  validation {
    condition     = alltrue([for name in keys(var.regions) : can(regex("^[A-Za-z][A-Za-z0-9_-]*$", name))])
    error_message = "regions: names start with a letter and hold letters, digits, '-' and '_' only; there are: ${join(", ", keys(var.regions))}."
  }

  validation {
    condition = alltrue(flatten([
      for name, region in var.regions : [for to in keys(region.links) : contains(keys(var.regions), to) && to != name]
    ]))
    error_message = "regions.*.links: every link leads to another cluster of `regions`; there are: ${join(", ", keys(var.regions))}."
  }

  validation {
    condition = alltrue(flatten([
      for region in values(var.regions) : [for link in values(region.links) : link.rtt_ms >= 0 && link.egress_usd_per_gb >= 0]
    ]))
    error_message = "regions.*.links: rtt_ms and egress_usd_per_gb are at least 0."
  }
}

variable "services" {
  description = "Declared placement: service name, then cluster name. threshold_rps is Waterfall's static threshold; 0: not declared. `autoscaler` is the one of the service's pods: its target as a share of the highest load of a pod, and the most pods. `namespace` and `port` of the service matter with `istio`: not set, they are the cluster's single namespace of the mesh and its callers' single route port."
  type = map(map(object({
    threshold_rps = optional(number, 0)
    autoscaler    = optional(object({ target_utilisation = number, max_pods = number }))
    namespace     = optional(string)
    port          = optional(number)
  })))
  default  = {}
  nullable = false

  validation {
    condition     = alltrue([for placements in values(var.services) : length(placements) > 0])
    error_message = "services: every service is placed in at least one cluster."
  }

  validation {
    condition     = alltrue(flatten([for placements in values(var.services) : [for placement in values(placements) : placement.threshold_rps >= 0]]))
    error_message = "services.*.*.threshold_rps: at least 0 requests per second; 0: not declared."
  }

  validation {
    condition = alltrue(flatten([
      for placements in values(var.services) : [
        for placement in values(placements) : try(
          placement.autoscaler.target_utilisation > 0 && placement.autoscaler.target_utilisation <= 1
          && placement.autoscaler.max_pods >= 1, placement.autoscaler == null
        )
      ]
    ]))
    error_message = "services.*.*.autoscaler: target_utilisation is above 0 and at most 1, max_pods at least 1."
  }

  validation {
    condition = alltrue(flatten([for placements in values(var.services) : [
      for placement in values(placements) : placement.port == null ? true : placement.port == floor(placement.port) && placement.port >= 1 && placement.port <= 65535
    ]]))
    error_message = "services.*.*.port: a whole number from 1 to 65535."
  }
}

variable "usd_per_ms_per_million_requests" {
  description = "The price of latency: US dollars per millisecond of mean latency saved on each of one million requests."
  type        = number

  validation {
    condition     = var.usd_per_ms_per_million_requests > 0
    error_message = "usd_per_ms_per_million_requests: must be above 0; a price has no default."
  }
}
