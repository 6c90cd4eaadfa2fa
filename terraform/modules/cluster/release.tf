resource "helm_release" "this" {
  name       = "spillway-cluster"
  namespace  = local.namespace
  chart      = var.chart.name
  repository = var.chart.repository
  version    = var.chart.version
  wait       = var.chart.wait_seconds > 0
  timeout    = max(var.chart.wait_seconds, 300)
  values = concat([yamlencode({
    cluster = { name = var.name }
    image   = { registry = var.image_registry }
    # Passwords are in the environment: pods roll when they change. Certificates are files, read again.
    credentialsRevision = join("-", [for name in ["spillway-relay", "spillway-collector"] : tostring(lookup(local.revisions, name, 0))])
    relay               = { namespaces = var.namespaces }
    collector           = { kafka = { brokers = join(",", var.servers.kafka) } }
    trust               = { for server, from in var.trust : server => from == "own" ? "ca.crt" : from == "system" ? from : "${server}.crt" }
    # The chart knows Kafka's ports by the brokers. The address of NATS is in a Secret.
    networkPolicy = { natsPorts = [tonumber(split(":", var.servers.nats)[1])] }
  })], local.istio_values, var.values)

  depends_on = [kubernetes_secret_v1.this, kubernetes_config_map_v1.this]
}
