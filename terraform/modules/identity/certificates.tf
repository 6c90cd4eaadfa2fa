# What relays, collectors and global servers show. A new generation, or the authority's, makes a new key.
locals {
  workloads = merge(
    { for pair in setproduct(keys(var.clusters), ["relay", "collector"]) : "cluster/${pair[0]}/${pair[1]}" => {
      authority  = "cluster/${pair[0]}/${var.clusters[pair[0]].authorities.active}"
      generation = var.clusters[pair[0]].certificates
      uris       = ["spiffe://${var.trust_domain}/cluster/${pair[0]}/${pair[1]}"]
      dns_names = [
        "spillway-${pair[1]}", "spillway-${pair[1]}.${var.namespace}", "spillway-${pair[1]}.${var.namespace}.svc",
        "spillway-${pair[1]}.${var.namespace}.svc.cluster.local",
      ]
    } },
    { for name, server in var.servers.certificates : "${local.servers}/${name}" => {
      authority  = "${local.servers}/${var.servers.active}"
      generation = server.generation
      uris       = []
      dns_names  = server.dns_names
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
  allowed_uses          = ["digital_signature", "server_auth"]
}
