output "namespace" {
  description = "Where the cluster's part of Spillway runs."
  value       = local.namespace
}

output "relay" {
  description = "Where the cluster's Envoys find their relay (xDS)."
  value       = "spillway-relay.${local.namespace}.svc:18000"
}

output "collector" {
  description = "Where spans go (OTLP over gRPC)."
  value       = "spillway-collector.${local.namespace}.svc:4317"
}

output "secrets" {
  description = "Names of the Secrets that the module made; empty where they exist already."
  value       = local.names

  precondition {
    condition     = var.public != null || length(local.authorities) == 0
    error_message = "trust: certificates go into the ConfigMap spillway-trust, which the module makes with `public` alone; there put them into it as kafka.crt and so on, and say the key in the chart's values."
  }
}
