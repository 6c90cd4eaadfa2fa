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
}
