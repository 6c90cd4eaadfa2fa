output "namespace" {
  description = "Where the global part of Spillway runs."
  value       = local.namespace
}

output "secrets" {
  description = "Names of the Secrets that the module made; empty where they exist already."
  value       = local.names

  precondition {
    condition     = !local.given || alltrue([for user in keys(local.permissions) : contains(keys(local.hashes), user)])
    error_message = "nats_user_files: a user there has no password in identity.nats_users; there are: ${join(", ", keys(local.permissions))}."
  }

  precondition {
    condition     = var.public != null || length(local.authorities) == 0
    error_message = "trust: certificates go into the ConfigMap spillway-trust, which the module makes with `public` alone; there put them into it as kafka.crt and so on, and say the key in the chart's values."
  }

  precondition {
    condition     = var.public != null || length(local.server_names) == 0
    error_message = "public: null, but identity.servers has ${join(", ", local.server_names)}; their Secrets hold the authorities of public.trust."
  }
}
