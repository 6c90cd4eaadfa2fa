# The providers make real keys: no server is needed for that.
variables {
  clusters = { a = {}, b = {} }
  servers  = { certificates = { nats = { dns_names = ["nats.example"] } } }
}

run "every_cluster_has_an_authority_of_its_own" {
  assert {
    condition     = output.clusters["a"].authority != output.clusters["b"].authority && output.clusters["a"].authority != output.trust
    error_message = "an authority is shared"
  }
  assert {
    condition     = tls_locally_signed_cert.certificate["cluster/a/relay/1.1"].ca_cert_pem == output.clusters["a"].authority
    error_message = "a's relay is vouched for by a's authority"
  }
  assert {
    condition     = tls_cert_request.certificate["cluster/b/collector/1.1"].uris == tolist(["spiffe://spillway.local/cluster/b/collector"])
    error_message = "a certificate names its cluster and workload"
  }
  assert {
    condition     = length(distinct([for user in values(random_password.user) : user.result])) == length(random_password.user)
    error_message = "two users share a password"
  }
  assert {
    condition     = startswith(output.nats_users["relay-a"], "$2a$") && !strcontains(jsonencode(output.nats_users), output.clusters["a"].nats.password)
    error_message = "the NATS server gets hashes alone"
  }
}

run "a_new_signing_key_is_trusted_before_it_signs" {
  variables {
    signing_keys = { trusted = ["1", "2"], active = "1" }
  }
  assert {
    condition     = output.signing_key == tls_private_key.signing["1"].private_key_pem_pkcs8
    error_message = "the first key still signs"
  }
  assert {
    condition     = output.ruleset_keys == "${tls_private_key.signing["1"].public_key_pem}${tls_private_key.signing["2"].public_key_pem}"
    error_message = "relays trust both"
  }
}

run "then_it_signs" {
  variables {
    signing_keys = { trusted = ["1", "2"], active = "2" }
  }
  assert {
    condition     = output.signing_key == tls_private_key.signing["2"].private_key_pem_pkcs8 && length(regexall("BEGIN PUBLIC KEY", output.ruleset_keys)) == 2
    error_message = "the publisher switches, relays stay"
  }
}

run "one_clusters_authority_changes_alone" {
  variables {
    clusters = { a = { authorities = { trusted = ["1", "2"], active = "2" } }, b = {} }
  }
  assert {
    condition     = output.clusters["b"].relay.certificate == tls_locally_signed_cert.certificate["cluster/b/relay/1.1"].cert_pem
    error_message = "b keeps its certificate"
  }
  assert {
    condition = alltrue([
      output.clusters["a"].relay.certificate == tls_locally_signed_cert.certificate["cluster/a/relay/2.1"].cert_pem,
      output.clusters["a"].authority == "${tls_self_signed_cert.authority["cluster/a/1"].cert_pem}${tls_self_signed_cert.authority["cluster/a/2"].cert_pem}",
    ])
    error_message = "a's pods trust both authorities, its relay has a certificate of the new one"
  }
}

run "an_agent_has_a_certificate_where_it_is_asked_for" {
  variables {
    clusters = { a = { agent = true }, b = {} }
  }
  assert {
    condition     = output.clusters["a"].agent.certificate == tls_locally_signed_cert.certificate["cluster/a/agent/1.1"].cert_pem && output.clusters["b"].agent == null
    error_message = "a's agent alone has one"
  }
  assert {
    condition     = contains(tls_locally_signed_cert.certificate["cluster/a/agent/1.1"].allowed_uses, "client_auth") && !contains(tls_locally_signed_cert.certificate["cluster/a/collector/1.1"].allowed_uses, "client_auth")
    error_message = "an agent is a client of the collector; a collector is nobody's"
  }
  assert {
    condition     = tls_cert_request.certificate["cluster/a/agent/1.1"].uris == tolist(["spiffe://spillway.local/cluster/a/collector"]) && contains(tls_cert_request.certificate["cluster/a/agent/1.1"].dns_names, "spillway-agent.spillway.svc.cluster.local")
    error_message = "Envoys take spans to a collector's identity, under the agent's name"
  }
}

run "nats_servers_may_open_routes_to_each_other" {
  variables {
    servers = { certificates = {
      nats    = { dns_names = ["nats.example"] }
      kafka   = { dns_names = ["kafka.example"] }
      standby = { dns_names = ["standby.example"], peer = true }
    } }
  }
  assert {
    condition = alltrue([for name in ["nats", "standby"] :
      tls_locally_signed_cert.certificate["servers/${name}/1.1"].allowed_uses == tolist(["digital_signature", "server_auth", "client_auth"])
    ])
    error_message = "NATS servers verify each other as clients on routes"
  }
  assert {
    condition     = tls_locally_signed_cert.certificate["servers/kafka/1.1"].allowed_uses == tolist(["digital_signature", "server_auth"])
    error_message = "a server that is nobody's client cannot open a route"
  }
}

run "a_clusters_certificates_carry_its_own_namespace" {
  variables {
    clusters = { a = { namespace = "mesh" }, b = {} }
  }
  assert {
    condition     = tls_cert_request.certificate["cluster/a/relay/1.1"].dns_names == tolist(["spillway-relay", "spillway-relay.mesh", "spillway-relay.mesh.svc", "spillway-relay.mesh.svc.cluster.local"])
    error_message = "a's relay is called by the name of its Service"
  }
  assert {
    condition     = contains(tls_cert_request.certificate["cluster/b/relay/1.1"].dns_names, "spillway-relay.spillway.svc")
    error_message = "b's is in the namespace of all"
  }
}

run "an_active_generation_is_trusted" {
  command = plan
  variables {
    clusters     = { a = { authorities = { active = "2" } } }
    signing_keys = { trusted = ["1"], active = "2" }
    servers      = { active = "2" }
    roles        = { nats = {}, kafka = {}, valkey = {} }
    validity     = { certificate_early_hours = 9000 }
  }
  expect_failures = [var.clusters, var.signing_keys, var.servers, var.roles, var.validity]
}
