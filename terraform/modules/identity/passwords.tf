# One password per user and generation. No character needs quoting in a URL.
locals {
  cluster_users = { for pair in setproduct(["nats", "kafka"], keys(var.clusters)) :
    "${pair[0]}/${pair[0] == "nats" ? "relay" : "collector"}-${pair[1]}" => var.clusters[pair[1]].passwords
  }
  role_users = merge([for server, roles in var.roles : { for role, generation in roles : "${server}/${role}" => generation }]...)
}

resource "random_password" "user" {
  for_each = merge(local.cluster_users, local.role_users)
  length   = 40
  special  = false
  keepers  = { generation = each.value }
}
