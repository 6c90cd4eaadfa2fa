terraform {
  required_version = ">= 1.8"
}

locals {
  topology = {
    clusters = [for name, region in var.regions : { name = name, region = region.region }]
    links = flatten([
      for name, region in var.regions : [
        for to, link in region.links : {
          source_cluster      = name
          destination_cluster = to
          rtt_ms              = link.rtt_ms
          egress_usd_per_gb   = link.egress_usd_per_gb
        }
      ]
    ])
    services = [
      for name, placements in var.services : {
        name = name
        placements = [
          for cluster, placement in placements : { cluster = cluster, threshold_rps = placement.threshold_rps }
        ]
      }
    ]
    usd_per_ms_per_million_requests = var.usd_per_ms_per_million_requests
  }
}
