# What relays, collectors, agents and global servers show. A new generation, or the authority's, makes a new key.
locals {
  # A peer also shows its certificate as a client: an agent to its collector, and a NATS server to the servers that it opens routes to.
  uses = {
    server = ["digital_signature", "server_auth"]
    peer   = ["digital_signature", "server_auth", "client_auth"]
  }
  namespaces = { for name, cluster in var.clusters : name => coalesce(cluster.namespace, var.namespace) }
  in_clusters = concat(
    [for pair in setproduct(keys(var.clusters), ["relay", "collector"]) : { cluster = pair[0], workload = pair[1] }],
    [for name, cluster in var.clusters : { cluster = name, workload = "agent" } if cluster.agent],
  )
  workloads = merge(
    { for holder in local.in_clusters : "cluster/${holder.cluster}/${holder.workload}" => {
      authority  = "cluster/${holder.cluster}/${var.clusters[holder.cluster].authorities.active}"
      generation = var.clusters[holder.cluster].certificates
      # An agent is a collector to the Envoys that send it spans: they take that identity alone.
      uris = ["spiffe://${var.trust_domain}/cluster/${holder.cluster}/${holder.workload == "agent" ? "collector" : holder.workload}"]
      dns_names = [
        for suffix in ["", ".${local.namespaces[holder.cluster]}", ".${local.namespaces[holder.cluster]}.svc", ".${local.namespaces[holder.cluster]}.svc.cluster.local"] :
        "spillway-${holder.workload}${suffix}"
      ]
      uses = local.uses[holder.workload == "agent" ? "peer" : "server"]
    } },
    { for name, server in var.servers.certificates : "${local.servers}/${name}" => {
      authority  = "${local.servers}/${var.servers.active}"
      generation = server.generation
      uris       = []
      dns_names  = server.dns_names
      uses       = local.uses[(server.peer == null ? name == "nats" : server.peer) ? "peer" : "server"]
    } },
  )
  # Addresses carry the generation: the old key leaves when the new one is there.
  certificates = { for name, workload in local.workloads : name => "${name}/${basename(workload.authority)}.${workload.generation}" }
}

resource "tls_private_key" "certificate" {
  for_each    = { for name, key in local.certificates : key => name }
  algorithm   = "ECDSA"
  ecdsa_curve = "P256"
}

resource "tls_cert_request" "certificate" {
  for_each        = { for name, key in local.certificates : key => name }
  private_key_pem = tls_private_key.certificate[each.key].private_key_pem
  uris            = local.workloads[each.value].uris
  dns_names       = local.workloads[each.value].dns_names

  subject {
    common_name = substr(each.value, 0, 64)
  }
}

resource "tls_locally_signed_cert" "certificate" {
  for_each              = { for name, key in local.certificates : key => name }
  cert_request_pem      = tls_cert_request.certificate[each.key].cert_request_pem
  ca_private_key_pem    = tls_private_key.authority[local.workloads[each.value].authority].private_key_pem
  ca_cert_pem           = tls_self_signed_cert.authority[local.workloads[each.value].authority].cert_pem
  validity_period_hours = var.validity.certificate_hours
  early_renewal_hours   = var.validity.certificate_early_hours
  allowed_uses          = local.workloads[each.value].uses
}
