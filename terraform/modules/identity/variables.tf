variable "clusters" {
  description = "Clusters by name and the generations of their credentials. `authorities`: those that the cluster's pods trust and the one that signs; `certificates` and `passwords`: another word makes new ones; `agent`: also a certificate for the chart's `agent.enabled`; `namespace`: where the cluster's relay and collector run, if not in variable `namespace`."
  type = map(object({
    authorities = optional(object({
      trusted = optional(list(string), ["1"])
      active  = optional(string, "1")
    }), {})
    certificates = optional(string, "1")
    passwords    = optional(string, "1")
    agent        = optional(bool, false)
    namespace    = optional(string)
  }))

  validation {
    condition     = alltrue([for name in keys(var.clusters) : can(regex("^[a-z][a-z0-9-]*$", name))])
    error_message = "clusters: names of users and Secrets are made of them: small letters, digits and '-', a letter first."
  }

  validation {
    condition     = alltrue([for cluster in values(var.clusters) : contains(cluster.authorities.trusted, cluster.authorities.active)])
    error_message = "clusters.*.authorities: `active` is one of `trusted`."
  }
}

variable "signing_keys" {
  description = "Generations of the key that signs rulesets: those that relays trust and the one that the publisher signs with."
  type = object({
    trusted = optional(list(string), ["1"])
    active  = optional(string, "1")
  })
  default  = {}
  nullable = false

  validation {
    condition     = contains(var.signing_keys.trusted, var.signing_keys.active)
    error_message = "signing_keys: `active` is one of `trusted`."
  }
}

variable "servers" {
  description = "Servers that get a certificate of the servers' authority, by name, with the DNS names that clients call them by; and the authority's generations. `peer`: its servers also show the certificate as clients, to each other; the default is true for `nats`, whose routes are mutual TLS, and false for all others."
  type = object({
    certificates = optional(map(object({ dns_names = list(string), generation = optional(string, "1"), peer = optional(bool) })), {})
    trusted      = optional(list(string), ["1"])
    active       = optional(string, "1")
  })
  default  = {}
  nullable = false

  validation {
    condition     = contains(var.servers.trusted, var.servers.active)
    error_message = "servers: `active` is one of `trusted`."
  }

  validation {
    condition     = alltrue([for server in values(var.servers.certificates) : length(server.dns_names) > 0])
    error_message = "servers.certificates.*.dns_names: at least one name."
  }
}

variable "roles" {
  description = "Users of the global servers by server (nats, kafka, redis, clickhouse), each with its role's name and its password's generation."
  type        = map(map(string))
  default = {
    nats       = { optimizer = "1", papa = "1", publisher = "1", operator = "1" }
    kafka      = { admit = "1", exclusive = "1", curves = "1", graph = "1", classify = "1", topics = "1" }
    redis      = { streams = "1", optimizer = "1", papa = "1", publisher = "1" }
    clickhouse = { migrate = "1", streams = "1", optimizer = "1", publisher = "1", analyst = "1" }
  }
  nullable = false

  validation {
    condition     = length(setsubtract(["nats", "kafka", "redis", "clickhouse"], keys(var.roles))) == 0 && length(var.roles) == 4
    error_message = "roles: needs exactly nats, kafka, redis and clickhouse; there are: ${join(", ", keys(var.roles))}."
  }
}

variable "trust_domain" {
  description = "Of the SPIFFE identities: spiffe://<trust_domain>/cluster/<cluster>/…"
  type        = string
  default     = "spillway.local"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z0-9._-]+$", var.trust_domain))
    error_message = "trust_domain: small letters, digits, '.', '_' and '-'."
  }
}

variable "namespace" {
  description = "Where the relay and the collector run in every cluster that names no other namespace: their certificates carry the Services' names."
  type        = string
  default     = "spillway"
  nullable    = false
}

variable "validity" {
  description = "Hours that certificates hold, and hours before the end from which an apply makes new ones."
  type = object({
    authority_hours         = optional(number, 43800)
    certificate_hours       = optional(number, 2160)
    certificate_early_hours = optional(number, 720)
  })
  default  = {}
  nullable = false

  validation {
    condition     = var.validity.certificate_early_hours >= 0 && var.validity.certificate_early_hours < var.validity.certificate_hours && var.validity.certificate_hours < var.validity.authority_hours
    error_message = "validity: 0 <= certificate_early_hours < certificate_hours < authority_hours."
  }
}
