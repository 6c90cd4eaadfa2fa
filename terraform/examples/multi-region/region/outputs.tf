output "relay" {
  description = "Where the region's Envoys find their relay."
  value       = module.cluster.relay
}

output "collector" {
  description = "Where the region's spans go."
  value       = module.cluster.collector
}
