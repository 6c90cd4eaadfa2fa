# Rulesets are signed by the active key; relays trust all of `trusted`.
resource "tls_private_key" "signing" {
  for_each  = toset(var.signing_keys.trusted)
  algorithm = "ED25519"
}
