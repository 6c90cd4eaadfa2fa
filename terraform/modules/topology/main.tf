terraform {
  required_version = ">= 1.8"
}

locals {
  active = [for name, region in var.regions : name if !region.drained]
  links = merge(
    {
      for link in flatten([
        for name, region in var.regions : [
          for to, link in region.links : { from = to, to = name, link = link } if link.both_ways
        ]
      ]) : "${link.from}/${link.to}" => link
    },
    # What a region says of its own way out counts.
    {
      for link in flatten([
        for name, region in var.regions : [for to, link in region.links : { from = name, to = to, link = link }]
      ]) : "${link.from}/${link.to}" => link
    },
  )
  # A drained cluster's own relay goes on knowing its cluster, so that what still arrives there is sent away.
  members = { for name in keys(var.regions) : name => distinct(concat(local.active, [name])) }
  seen    = merge({ for name in keys(var.regions) : name => local.members[name] }, { "" = local.active })

  topologies = {
    for name, members in local.seen : name => {
      clusters = [for cluster, region in var.regions : { name = cluster, region = region.region } if contains(members, cluster)]
      links = [
        for link in local.links : {
          source_cluster      = link.from
          destination_cluster = link.to
          rtt_ms              = link.link.rtt_ms
          egress_usd_per_gb   = link.link.egress_usd_per_gb
        } if contains(members, link.from) && contains(members, link.to)
      ]
      services = [
        for service, placements in var.services : {
          name = service
          placements = [
            for cluster, placement in placements : merge(
              { cluster = cluster, threshold_rps = placement.threshold_rps },
              { for key, value in { autoscaler = placement.autoscaler } : key => value if value != null },
            )
            if contains(members, cluster)
          ]
        } if anytrue([for cluster in keys(placements) : contains(members, cluster)])
      ]
      usd_per_ms_per_million_requests = var.usd_per_ms_per_million_requests
    }
  }
}
