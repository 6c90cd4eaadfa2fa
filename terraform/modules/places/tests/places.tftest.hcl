variables {
  global = {
    kubernetes = { kubeconfig = "k", context = "a" }
    servers    = { nats = "nats.example:4222", kafka = ["kafka.example:9093"], redis = "redis.example:6379", clickhouse = "clickhouse.example:9440" }
  }
  regions = {
    a = { kubernetes = { kubeconfig = "k", context = "a" }, namespace = { name = "edge", labels = { team = "x" } } }
    b = { kubernetes = { kubeconfig = "k", context = "b" } }
  }
}

run "each_part_has_its_own_namespace" {
  command = plan

  assert {
    condition     = output.namespaces.global.name == "spillway" && output.namespaces.regions["b"].create
    error_message = "the default is spillway, made by the module"
  }
  assert {
    condition     = output.namespaces.regions["a"].name == "edge" && output.namespaces.regions["a"].labels["team"] == "x"
    error_message = "a region's namespace is its own"
  }
  assert {
    condition     = output.servers.nats == "nats.example:4222" && output.servers.database == "spillway" && length(output.certificates) == 0
    error_message = "servers elsewhere stay as the map says, and get no certificate"
  }
}

run "one_namespace_for_two_parts_is_refused" {
  command = plan
  variables {
    regions = { a = { kubernetes = { kubeconfig = "k", context = "a" } } }
  }
  expect_failures = [output.namespaces]
}

run "two_clusters_may_have_the_same_namespace" {
  command = plan
  variables {
    regions = { a = { kubernetes = { kubeconfig = "other", context = "a" } }, b = { kubernetes = { kubeconfig = "k", context = "b" } } }
  }
  assert {
    condition     = output.namespaces.regions["a"].name == output.namespaces.global.name
    error_message = "spillway in both"
  }
}

run "a_namespace_is_a_dns_label" {
  command = plan
  variables {
    global  = { kubernetes = { kubeconfig = "k", context = "a" }, namespace = { name = "Spillway" } }
    regions = { a = { kubernetes = { kubeconfig = "k", context = "a" }, namespace = { name = "a.b" } } }
  }
  expect_failures = [var.global, var.regions]
}

run "bundled_servers_are_called_by_the_namespace" {
  command = plan
  variables {
    global = {
      kubernetes = { kubeconfig = "k", context = "a" }
      namespace  = { name = "flow" }
      values = { bundled = {
        nats = { enabled = true, replicas = 1 }, kafka = { enabled = true }, redis = { enabled = true }, clickhouse = { enabled = true }
      } }
    }
    regions = { a = { kubernetes = { kubeconfig = "k", context = "a" } } }
  }
  assert {
    condition = output.servers == {
      nats       = "spillway-nats.flow.svc:4222"
      kafka      = tolist(["spillway-kafka-kafka-bootstrap.flow.svc:9093"])
      redis      = "spillway-redis.flow.svc:6380"
      clickhouse = "clickhouse-spillway.flow.svc:9440"
      database   = "spillway"
    }
    error_message = "addresses are those of the Services"
  }
  assert {
    condition     = alltrue([for name in ["spillway-nats.flow.svc", "*.spillway-nats.flow.svc"] : contains(output.certificates["nats"].dns_names, name)])
    error_message = "clients call the Service, servers each other"
  }
  assert {
    condition     = contains(output.certificates["clickhouse"].dns_names, "*.flow.svc.cluster.local") && length(output.certificates["redis"].dns_names) == 2
    error_message = "ClickHouse's pods have names, Redis has one"
  }
}

run "what_the_map_says_of_a_bundled_server_counts" {
  command = plan
  variables {
    global = {
      kubernetes = { kubeconfig = "k", context = "a" }
      servers    = { nats = "nats.example:4222", kafka = ["kafka.example:9093"], redis = "redis.example:6379", clickhouse = "clickhouse.example:9440" }
      server_certificates = {
        nats  = { generation = "2" }
        kafka = { dns_names = ["kafka.example"] }
      }
      values = { bundled = { nats = { enabled = true }, kafka = { enabled = true } } }
    }
  }
  assert {
    condition     = output.servers.nats == "nats.example:4222"
    error_message = "an address that is given"
  }
  assert {
    condition     = output.certificates["nats"].generation == "2" && output.certificates["nats"].dns_names[0] == "nats.example" && contains(output.certificates["nats"].dns_names, "*.spillway-nats.spillway.svc")
    error_message = "NATS: the address of the map and the names of the pods"
  }
  assert {
    condition     = output.certificates["kafka"].dns_names == tolist(["kafka.example"])
    error_message = "names that are given are all"
  }
}

run "a_server_that_is_nowhere_is_refused" {
  command = plan
  variables {
    global = { kubernetes = { kubeconfig = "k", context = "a" }, namespace = { name = "flow" } }
  }
  expect_failures = [output.servers]
}

run "a_bundled_server_has_no_name_in_another_cluster" {
  command = plan
  variables {
    global = {
      kubernetes = { kubeconfig = "k", context = "a" }
      servers    = { kafka = ["kafka.example:9093"], redis = "redis.example:6379", clickhouse = "clickhouse.example:9440" }
      values     = { bundled = { nats = { enabled = true } } }
    }
  }
  expect_failures = [output.servers]
}
