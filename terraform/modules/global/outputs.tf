output "namespace" {
  description = "Where the global part of Spillway runs."
  value       = local.namespace
}

output "secrets" {
  description = "Names of the Secrets that the module made; empty where they exist already."
  value       = local.names
}
