# One region, from the same map as all others, with a state of its own: a region that is dead holds nobody up.
locals {
  map    = yamldecode(file(var.map_file))
  region = local.map.regions[var.region]
}

module "places" {
  source = "../../../modules/places"

  global  = local.map.global
  regions = local.map.regions
}

module "topology" {
  source = "../../../modules/topology"

  regions                         = local.map.regions
  services                        = local.map.services
  istio                           = { for name, region in local.map.regions : name => try(region.istio, false) }
  usd_per_ms_per_million_requests = local.map.global.usd_per_ms_per_million_requests
}

module "cluster" {
  source = "../../../modules/cluster"

  name               = var.region
  namespace          = module.places.namespaces.regions[var.region]
  chart              = { name = local.map.charts.cluster }
  values             = [yamlencode(try(local.map.cluster_values, {})), yamlencode(try(local.region.values, {}))]
  image_registry     = local.map.global.image_registry
  servers            = { nats = module.places.servers.nats, kafka = module.places.servers.kafka }
  namespaces         = try(local.region.namespaces, [])
  public             = var.public
  trust              = { for server, from in try(local.map.global.trust, {}) : server => from if contains(["kafka", "nats"], server) }
  identity           = var.identity
  istio              = module.topology.istio_of[var.region]
  issuer_namespace   = try(local.map.issuer_namespace, null)
  write_only_secrets = try(local.map.secrets.write_only, false)
  topology = {
    topology_yaml  = module.topology.yaml_of[var.region]
    endpoints_yaml = module.topology.endpoints_of[var.region]
  }
}
