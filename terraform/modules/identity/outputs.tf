locals {
  trusted = merge(
    { for name, cluster in var.clusters : "cluster/${name}" => join("", [
      for generation in cluster.authorities.trusted : tls_self_signed_cert.authority["cluster/${name}/${generation}"].cert_pem
    ]) },
    { (local.servers) = join("", [for generation in var.servers.trusted : tls_self_signed_cert.authority["${local.servers}/${generation}"].cert_pem]) },
  )
  pairs = { for name, key in local.certificates : name => {
    certificate = tls_locally_signed_cert.certificate[key].cert_pem
    key         = tls_private_key.certificate[key].private_key_pem_pkcs8
  } }
}

output "clusters" {
  description = "What one cluster gets, by cluster: nothing in it opens another cluster's doors."
  sensitive   = true
  value = { for name, cluster in var.clusters : name => {
    relay     = local.pairs["cluster/${name}/relay"]
    collector = local.pairs["cluster/${name}/collector"]
    agent     = cluster.agent ? local.pairs["cluster/${name}/agent"] : null
    authority = local.trusted["cluster/${name}"]
    issuer = {
      certificate = tls_self_signed_cert.authority["cluster/${name}/${cluster.authorities.active}"].cert_pem
      key         = tls_private_key.authority["cluster/${name}/${cluster.authorities.active}"].private_key_pem_pkcs8
    }
    nats  = { user = "relay-${name}", password = random_password.user["nats/relay-${name}"].result }
    kafka = { user = "collector-${name}", password = random_password.user["kafka/collector-${name}"].result }
  } }
}

output "roles" {
  description = "Passwords of the global roles: server, then role."
  sensitive   = true
  value       = { for server, roles in var.roles : server => { for role in keys(roles) : role => random_password.user["${server}/${role}"].result } }
}

output "nats_users" {
  description = "NATS users with the bcrypt hash of their password: all that the server needs."
  sensitive   = true
  value       = { for key, password in random_password.user : trimprefix(key, "nats/") => password.bcrypt_hash if startswith(key, "nats/") }
}

output "kafka_users" {
  description = "Kafka users with their password."
  sensitive   = true
  value       = { for key, password in random_password.user : trimprefix(key, "kafka/") => password.result if startswith(key, "kafka/") }
}

output "servers" {
  description = "Certificate and key of each global server."
  sensitive   = true
  value       = { for name in keys(var.servers.certificates) : name => local.pairs["${local.servers}/${name}"] }
}

output "signing_key" {
  description = "The key that the publisher signs with (PKCS#8 PEM, Ed25519)."
  sensitive   = true
  value       = tls_private_key.signing[var.signing_keys.active].private_key_pem_pkcs8
}

output "ruleset_keys" {
  description = "The public keys that relays trust (SPKI PEM). Public."
  value       = join("", [for generation in var.signing_keys.trusted : tls_private_key.signing[generation].public_key_pem])
}

output "trust" {
  description = "The authorities of the global servers (PEM). Public."
  value       = local.trusted[local.servers]
}
