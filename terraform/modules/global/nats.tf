# users.conf of the bus: the permissions are infra/nats/users', the passwords bcrypt hashes.
locals {
  user_files = var.nats_user_files == null ? {} : {
    for file in fileset(var.nats_user_files, "*.conf") : trimsuffix(file, ".conf") => file("${var.nats_user_files}/${file}")
  }
  # User -> its permissions. A role without a password is no user.
  permissions = merge(
    { for role, text in local.user_files : role => text if role != "relay" },
    { for cluster in var.clusters : "relay-${cluster}" =>
      replace(replace(replace(local.user_files["relay"], "@CLUSTER@", cluster), "@USER@", "relay-${cluster}"), "@INBOX@", "_INBOX_RELAY_${cluster}")
      if var.nats_user_files != null
    },
  )
  # "$" refers to groups in a replacement.
  hashes = !local.given ? {} : { for user, hash in var.identity.nats_users : user => replace(hash, "$", "$$") }
  users_conf = "users: [\n${join("\n", [
    for user, text in local.permissions :
    "{\n${replace(text, "/password: \\$[@A-Z_]+/", "password: \"${local.hashes[user]}\"")}\n}" if contains(keys(local.hashes), user)
  ])}\n]\n"
}
