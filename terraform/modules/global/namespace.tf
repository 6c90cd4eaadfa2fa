resource "kubernetes_namespace_v1" "this" {
  count = var.namespace.create ? 1 : 0

  metadata {
    name   = var.namespace.name
    labels = merge({ "app.kubernetes.io/part-of" = "spillway" }, var.namespace.labels)
  }
}

locals {
  # Known at plan time, and after the namespace in order.
  namespace = var.namespace.create ? kubernetes_namespace_v1.this[0].metadata[0].name : var.namespace.name
  labels    = { "app.kubernetes.io/part-of" = "spillway", "app.kubernetes.io/managed-by" = "terraform" }
}
