# One authority per cluster and generation, and one for the global servers: nobody's authority vouches for another's.
locals {
  servers = "servers"
  authorities = merge(
    { for pair in flatten([
      for name, cluster in var.clusters : [for generation in cluster.authorities.trusted : { owner = "cluster/${name}", generation = generation }]
    ]) : "${pair.owner}/${pair.generation}" => "Spillway ${pair.owner}" },
    { for generation in var.servers.trusted : "${local.servers}/${generation}" => "Spillway servers" },
  )
}

resource "tls_private_key" "authority" {
  for_each    = local.authorities
  algorithm   = "ECDSA"
  ecdsa_curve = "P256"
}

resource "tls_self_signed_cert" "authority" {
  for_each              = local.authorities
  private_key_pem       = tls_private_key.authority[each.key].private_key_pem
  is_ca_certificate     = true
  set_subject_key_id    = true
  validity_period_hours = var.validity.authority_hours
  allowed_uses          = ["cert_signing", "crl_signing"]

  subject {
    common_name = "${each.value} ${basename(each.key)}"
  }
}
