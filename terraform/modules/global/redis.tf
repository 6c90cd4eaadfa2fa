# users.acl of Redis: the rights are infra/redis/users.acl's, the passwords SHA-256; nobody else may do anything.
locals {
  acl_lines = var.redis_user_file == null ? [] : [
    for line in split("\n", file(var.redis_user_file)) : line if startswith(line, "user ")
  ]
  users_acl = join("", concat(["user default off\n"], [
    for line in local.acl_lines :
    "${replace(line, "/#<[a-z]+>/", "#${sha256(local.roles.redis[split(" ", line)[1]])}")}\n" if local.given
  ]))
}
