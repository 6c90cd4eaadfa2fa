locals {
  # Passwords are in the environment: pods roll when they change. The signing key is a file, read again.
  revisions_of_pods = [for workload in local.workloads : tostring(lookup(local.revisions, "spillway-${workload}", 0))]
}

resource "helm_release" "this" {
  name       = "spillway-global"
  namespace  = local.namespace
  chart      = var.chart.name
  repository = var.chart.repository
  version    = var.chart.version
  wait       = var.chart.wait_seconds > 0
  timeout    = max(var.chart.wait_seconds, 300)
  values = concat([yamlencode({
    image               = { registry = var.image_registry }
    credentialsRevision = substr(sha256(join("-", local.revisions_of_pods)), 0, 16)
    # Some of its workloads read the topology once, at their start.
    topologyRevision = substr(sha256(var.topology_yaml), 0, 16)
    kafka            = { brokers = join(",", var.servers.kafka), clusters = var.clusters }
    trust            = { for server, from in var.trust : server => from == "own" ? "ca.crt" : from == "system" ? from : "${server}.crt" }
    # The chart knows Kafka's ports by the brokers. Other addresses are in Secrets.
    networkPolicy = { for server in ["clickhouse", "nats", "redis"] : server => { ports = [tonumber(split(":", var.servers[server])[1])] } }
  })], var.values)

  depends_on = [kubernetes_secret_v1.this, kubernetes_config_map_v1.this]
}
