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
  description = "The chart spillway-global: a path or packed file, or its name in `repository`; `wait_seconds`: how long its workloads may take to become ready, 0: not waited for."
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

variable "topology_yaml" {
  description = "The topology file's text: output `yaml` of modules/topology."
  type        = string
}

variable "servers" {
  description = "Addresses of the servers, host:port, spoken to by TLS alone; `database` is ClickHouse's."
  type = object({
    nats       = string
    kafka      = list(string)
    redis      = string
    clickhouse = string
    database   = optional(string, "spillway")
  })

  validation {
    condition = length(var.servers.kafka) > 0 && alltrue([
      for address in concat([var.servers.nats, var.servers.redis, var.servers.clickhouse], var.servers.kafka) :
      can(regex("^[^/:@]+:[0-9]+$", address))
    ])
    error_message = "servers: host:port, without scheme or password; at least one Kafka broker."
  }
}

variable "public" {
  description = "Public halves: `trust`, the authorities of the servers, and `ruleset_keys`, whose signatures count (PEM). null: the ConfigMaps spillway-trust and spillway-ruleset-keys exist already."
  type        = object({ trust = string, ruleset_keys = string })
  default     = null
}

variable "trust" {
  description = "By server (clickhouse, kafka, nats, redis), what its certificate chains to: `own`, the authorities in `public` (the default); `system`, the public ones that the images know; or a managed server's authorities (PEM), for that server alone."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = length(setsubtract(keys(var.trust), ["clickhouse", "kafka", "nats", "redis"])) == 0
    error_message = "trust: servers are clickhouse, kafka, nats, redis; there are: ${join(", ", keys(var.trust))}."
  }

  validation {
    condition     = alltrue([for from in values(var.trust) : contains(["own", "system"], from) || startswith(from, "-----BEGIN CERTIFICATE-----")])
    error_message = "trust: each is own, system or certificates (PEM)."
  }
}

variable "identity" {
  description = "Of modules/identity: passwords by server and role, the key that signs, NATS users with bcrypt hashes, Kafka users with passwords, server certificates. null: the Secrets exist already, and the state holds none of them."
  type = object({
    roles       = map(map(string))
    signing_key = string
    nats_users  = map(string)
    kafka_users = map(string)
    servers     = optional(map(object({ certificate = string, key = string })), {})
  })
  default   = null
  sensitive = true
}

variable "nats_user_files" {
  description = "Folder with the permissions of the NATS users, infra/nats/users: one file per role, relay.conf for every cluster. null: the bus has users of its own making."
  type        = string
  default     = null
}

variable "redis_user_file" {
  description = "Redis's users with their rights, infra/redis/users.acl. null: Redis has users of its own making."
  type        = string
  default     = null
}

variable "clusters" {
  description = "Names of the application clusters: each one's relay is a NATS user, its collectors a Kafka user with topics of its own."
  type        = list(string)
  nullable    = false

  validation {
    condition     = length(var.clusters) > 0
    error_message = "clusters: at least one name. The chart takes no empty list: there would be no topic to read."
  }
}

variable "write_only_secrets" {
  description = "Write Secrets without leaving a copy in the state: needs Terraform 1.11 or OpenTofu 1.11. Changes that others make to the Secrets are then not seen."
  type        = bool
  default     = false
  nullable    = false

  validation {
    condition     = !var.write_only_secrets || can(ephemeralasnull(null))
    error_message = "write_only_secrets: needs Terraform 1.11 or OpenTofu 1.11; leave it false with older ones."
  }
}
