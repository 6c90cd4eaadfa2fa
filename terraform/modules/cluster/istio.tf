# What relay and collector of a cluster of an Istio mesh need: whom they trust, and what the chart makes for sidecars.
locals {
  reads_root = local.given && try(var.istio.namespaces[0], null) != null && try(var.istio.root, null) == null
  mesh_root  = !local.reads_root ? try(var.istio.root, null) : data.kubernetes_config_map_v1.mesh_root[0].data["root-cert.pem"]
  # The public half of the cluster's own authority.
  authority = !local.given ? null : nonsensitive(var.identity.authority)

  istio_files = var.istio == null || !local.given ? {} : {
    spillway-mesh-authorities = { "ca.crt" = "${chomp(local.mesh_root)}\n${local.authority}" }
  }
  istio_values = [for mesh in var.istio[*] : yamlencode({ istio = { for key, value in {
    enabled        = true
    trustDomain    = mesh.trust_domain
    namespaces     = mesh.namespaces
    relayAuthority = local.authority
    routes         = mesh.routes
    filter         = mesh.filter == null ? null : { for key, value in mesh.filter : key => value if value != null }
  } : key => value if value != null } })]
}

# Istio keeps it in every namespace with sidecars.
data "kubernetes_config_map_v1" "mesh_root" {
  count = local.reads_root ? 1 : 0

  metadata {
    name      = "istio-ca-root-cert"
    namespace = var.istio.namespaces[0]
  }

  lifecycle {
    postcondition {
      condition     = can(regex("BEGIN CERTIFICATE", self.data["root-cert.pem"]))
      error_message = "istio.root: not set, and ConfigMap istio-ca-root-cert in namespace ${var.istio.namespaces[0]} has no key root-cert.pem. Install Istio in the cluster first, or set `root` to the mesh's root (PEM)."
    }
  }
}
