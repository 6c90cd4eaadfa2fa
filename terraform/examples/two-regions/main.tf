# The two clusters of lab/scenarios/two-clusters.yaml.
terraform {
  required_version = ">= 1.8"
}

module "topology" {
  source = "../../modules/topology"

  regions = {
    west = { region = "us-west", links = { east = { rtt_ms = 25, egress_usd_per_gb = 0.02 } } }
    east = { region = "us-east", links = { west = { rtt_ms = 25, egress_usd_per_gb = 0.02 } } }
  }
  services = {
    gateway  = { west = { threshold_rps = 1200 }, east = { threshold_rps = 1200 } }
    frontend = { west = { threshold_rps = 450 }, east = { threshold_rps = 450 } }
    backend  = { west = { threshold_rps = 90 }, east = { threshold_rps = 90 } }
  }
  usd_per_ms_per_million_requests = 0.1
}

output "topology_yaml" {
  value = module.topology.yaml
}
