output "regions" {
  description = "Regions of the map that was applied, and whether they are drained: `apply` reads it."
  value       = { for name, region in local.map.regions : name => { drained = try(region.drained, false) } }
}

output "public" {
  description = "What every region trusts; null with existing Secrets."
  value       = local.public
}

output "identities" {
  description = "What each region gets: `apply` hands a region its own entry alone. null with existing Secrets."
  sensitive   = true
  value       = local.existing ? null : module.identity[0].clusters
}
