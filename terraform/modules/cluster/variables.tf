variable "name" {
  description = "The cluster's name, as the topology has it."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]*$", var.name))
    error_message = "name: small letters, digits and '-', a letter first; an identity has no default."
  }
}

variable "namespace" {
  description = "Made by the module, unless `create` is false."
  type = object({
    name   = optional(string, "spillway")
    create = optional(bool, true)
    labels = optional(map(string), {})
  })
  default  = {}
  nullable = false
}

variable "chart" {
  description = "The chart spillway-cluster: a path or packed file, or its name in `repository`; `wait_seconds`: how long its workloads may take to become ready, 0: not waited for."
  type = object({
    name         = string
    repository   = optional(string)
    version      = optional(string)
    wait_seconds = optional(number, 600)
  })

  validation {
    condition     = length(var.chart.name) > 0 && var.chart.wait_seconds >= 0
    error_message = "chart: `name` is a path, a packed file or a name; `wait_seconds` is at least 0."
  }
}

variable "values" {
  description = "More values of the chart, later ones count: YAML texts."
  type        = list(string)
  default     = []
  nullable    = false
}

variable "image_registry" {
  description = "Where the images are, for example ghcr.io/example."
  type        = string

  validation {
    condition     = length(var.image_registry) > 0
    error_message = "image_registry: where the images are; it has no default."
  }
}

variable "topology" {
  description = "Texts of the two files that the relay reads: outputs `yaml_of` and `endpoints_of` of modules/topology."
  type        = object({ topology_yaml = string, endpoints_yaml = string })
}

variable "namespaces" {
  description = "Namespaces whose EndpointSlices the relay may read: those of the endpoints file."
  type        = list(string)
  default     = []
  nullable    = false
}

variable "servers" {
  description = "Addresses of the global servers, host:port."
  type        = object({ nats = string, kafka = list(string) })

  validation {
    condition     = alltrue([for address in concat([var.servers.nats], var.servers.kafka) : can(regex("^[^/:@]+:[0-9]+$", address))]) && length(var.servers.kafka) > 0
    error_message = "servers: host:port, without scheme or password; at least one Kafka broker."
  }
}

variable "public" {
  description = "Public halves that the cluster trusts: `trust`, the authorities of the global servers, and `ruleset_keys` (PEM). null: the ConfigMaps spillway-trust and spillway-ruleset-keys exist already."
  type        = object({ trust = string, ruleset_keys = string })
  default     = null
}

variable "trust" {
  description = "By server (kafka, nats), what its certificate chains to: `own`, the authorities in `public` (the default); `system`, the public ones that the images know; or a managed server's authorities (PEM), for that server alone."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = length(setsubtract(keys(var.trust), ["kafka", "nats"])) == 0
    error_message = "trust: servers are kafka, nats; there are: ${join(", ", keys(var.trust))}."
  }

  validation {
    condition     = alltrue([for from in values(var.trust) : contains(["own", "system"], from) || startswith(from, "-----BEGIN CERTIFICATE-----")])
    error_message = "trust: each is own, system or certificates (PEM)."
  }
}

variable "identity" {
  description = "The cluster's entry of output `clusters` of modules/identity. null: the Secrets exist already, and the state holds none of them."
  type = object({
    relay     = object({ certificate = string, key = string })
    collector = object({ certificate = string, key = string })
    agent     = optional(object({ certificate = string, key = string }))
    authority = string
    issuer    = object({ certificate = string, key = string })
    nats      = object({ user = string, password = string })
    kafka     = object({ user = string, password = string })
  })
  default   = null
  sensitive = true
}

variable "istio" {
  description = "The cluster's entry of output `istio_of` of modules/topology; null: no Istio. `root`: PEM of the mesh's root; null: read from ConfigMap istio-ca-root-cert in the first of `namespaces`. With `identity` null, ConfigMap spillway-mesh-authorities exists already, and `values` set `istio.relayAuthority`."
  type = object({
    trust_domain = optional(string, "cluster.local")
    namespaces   = list(string)
    root         = optional(string)
    filter = optional(object({
      url      = string
      sha256   = optional(string)
      services = list(object({ service = string, namespace = string, edge = bool }))
    }))
    routes = optional(object({
      ports        = optional(list(number), [])
      workloads    = optional(list(object({ service = string, namespace = string })), [])
      destinations = optional(list(object({ service = string, namespace = string, port = number, clusters = list(string) })), [])
    }), {})
  })
  default = null

  validation {
    condition     = var.istio == null ? true : length(var.istio.namespaces) > 0
    error_message = "istio.namespaces: empty; at least one namespace of the mesh."
  }
}

variable "issuer_secret" {
  description = "Also make Secret spillway-issuer with the cluster's authority and its key, of which a cert-manager Issuer makes the pods' certificates."
  type        = bool
  default     = true
  nullable    = false
}

variable "issuer_namespace" {
  description = "Where spillway-issuer is: cert-manager reads the Secrets of ClusterIssuers in its own namespace. The namespace must exist. null: the namespace of the others."
  type        = string
  default     = null
}

variable "write_only_secrets" {
  description = "Write Secrets without leaving them in the state: needs Terraform 1.11 or OpenTofu 1.11. Changes that others make to the Secrets are then not seen."
  type        = bool
  default     = false
  nullable    = false

  validation {
    condition     = !var.write_only_secrets || can(ephemeralasnull(null))
    error_message = "write_only_secrets: needs Terraform 1.11 or OpenTofu 1.11; leave it false with older ones."
  }
}
