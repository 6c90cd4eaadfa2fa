# The global part, and every identity: applied first. It needs no region to be alive.
locals {
  map      = yamldecode(file(var.map_file))
  existing = try(local.map.secrets.existing, false)
  public   = local.existing ? null : { trust = module.identity[0].trust, ruleset_keys = module.identity[0].ruleset_keys }
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

module "identity" {
  source = "../../../modules/identity"
  count  = local.existing ? 0 : 1

  # A region that runs the agents, by its own values or by everyone's, gets their certificate.
  clusters = { for name, region in local.map.regions : name => merge(
    {
      agent     = try(region.values.agent.enabled, local.map.cluster_values.agent.enabled, false)
      namespace = module.places.namespaces.regions[name].name
    },
    try(region.identity, {}),
  ) }
  signing_keys = try(local.map.global.signing_keys, {})
  servers      = merge(try(local.map.global.server_authority, {}), { certificates = module.places.certificates })
}

module "global" {
  source = "../../../modules/global"

  namespace          = module.places.namespaces.global
  chart              = { name = local.map.charts.global }
  values             = [yamlencode(try(local.map.global.values, {}))]
  image_registry     = local.map.global.image_registry
  topology_yaml      = module.topology.yaml
  servers            = module.places.servers
  clusters           = keys(local.map.regions)
  nats_user_files    = "${path.root}/../../../../infra/nats/users"
  redis_user_file    = "${path.root}/../../../../infra/redis/users.acl"
  write_only_secrets = try(local.map.secrets.write_only, false)
  public             = local.public
  trust              = try(local.map.global.trust, {})
  identity = local.existing ? null : {
    roles       = module.identity[0].roles
    signing_key = module.identity[0].signing_key
    nats_users  = module.identity[0].nats_users
    kafka_users = module.identity[0].kafka_users
    servers     = module.identity[0].servers
  }
}
