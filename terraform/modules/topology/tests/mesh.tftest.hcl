variables {
  regions = {
    a = { region = "r-a", namespaces = ["shop"], links = { b = { rtt_ms = 25, both_ways = true } } }
    b = { region = "r-b", namespaces = ["shop"] }
  }
  services = {
    gate   = { a = {}, b = {} }
    ledger = { b = {} }
  }
  usd_per_ms_per_million_requests = 0.1
}

run "without_istio_nothing_is_derived" {
  command = plan

  assert {
    condition     = output.istio_of["a"] == null && output.istio_of["b"] == null
    error_message = "no region has Istio"
  }
  assert {
    condition     = yamldecode(output.endpoints_of["a"]).kubernetes[0].port == "15006"
    error_message = "pods are found at Envoy's port"
  }
}

run "true_is_the_defaults" {
  command = plan
  variables {
    istio = { a = true, b = false }
  }
  assert {
    condition     = output.istio_of["a"].trust_domain == "cluster.local" && output.istio_of["a"].namespaces[0] == "shop" && output.istio_of["b"] == null
    error_message = "the mesh's default trust domain, the region's namespaces; b is not in it"
  }
  assert {
    condition     = output.istio_of["a"].filter == null && length(output.istio_of["a"].routes.destinations) == 0 && output.istio_of["a"].root == null
    error_message = "nothing is measured or enforced that the map does not name"
  }
}

run "lists_follow_from_placements" {
  command = plan
  variables {
    istio = {
      a = {
        trust_domain = "mesh.example"
        route_ports  = [8080]
        callers      = ["gate"]
        filter       = { url = "oci://registry.example/filter:1", sha256 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", edges = ["gate"] }
      }
      b = { trust_domain = "mesh.example" }
    }
  }
  assert {
    condition = jsonencode(output.istio_of["a"].routes) == jsonencode({
      ports = [8080]
      destinations = [
        { service = "gate", namespace = "shop", port = 8080, clusters = ["a", "b"] },
        { service = "ledger", namespace = "shop", port = 8080, clusters = ["b"] },
      ]
      workloads = [{ service = "gate", namespace = "shop" }]
    })
    error_message = "every service is a destination in each cluster where it is placed"
  }
  assert {
    condition     = jsonencode(output.istio_of["a"].filter.services) == jsonencode([{ service = "gate", namespace = "shop", edge = true }])
    error_message = "the filter is beside the cluster's own services"
  }
  assert {
    condition     = length(output.istio_of["b"].routes.destinations) == 0
    error_message = "a cluster without route ports leads nobody"
  }
  assert {
    condition     = yamldecode(output.endpoints_of["a"]).kubernetes[0].port == "8080" && yamldecode(output.endpoints_of["b"]).kubernetes[0].port == "15006"
    error_message = "routes lead to the pods' own port"
  }
}

run "a_service_has_its_own_namespace_and_port" {
  command = plan
  variables {
    regions = {
      a = { region = "r-a", namespaces = ["shop", "books"], port = "http" }
      b = { region = "r-b", namespaces = ["shop"] }
    }
    services = {
      gate   = { a = { namespace = "shop", port = 8080 }, b = { port = 8080 } }
      ledger = { a = { namespace = "books", port = 9090 }, b = { port = 9090 } }
      mail   = { a = { namespace = "books", port = 25 } }
    }
    istio = { a = { route_ports = [8080, 9090], callers = ["gate"] }, b = true }
  }
  assert {
    condition = jsonencode(output.istio_of["a"].routes.destinations) == jsonencode([
      { service = "gate", namespace = "shop", port = 8080, clusters = ["a", "b"] },
      { service = "ledger", namespace = "books", port = 9090, clusters = ["a"] },
      { service = "ledger", namespace = "shop", port = 9090, clusters = ["b"] },
    ])
    error_message = "a destination per namespace; mail's port stays Istio's"
  }
  assert {
    condition     = yamldecode(output.endpoints_of["a"]).kubernetes[0].port == "http"
    error_message = "the port that the region says"
  }
}

run "a_drained_cluster_is_no_destination_but_its_own" {
  command = plan
  variables {
    regions = {
      a = { region = "r-a", namespaces = ["shop"] }
      b = { region = "r-b", namespaces = ["shop"], drained = true }
    }
    istio = { a = { route_ports = [8080], callers = ["gate"] }, b = { route_ports = [8080], callers = ["gate"] } }
  }
  assert {
    condition     = join(" ", output.istio_of["a"].routes.destinations[0].clusters) == "a" && join(" ", output.istio_of["b"].routes.destinations[0].clusters) == "a b"
    error_message = "a sends nothing to b, b still knows both"
  }
}

run "a_route_into_a_region_without_the_mesh_is_refused" {
  command = plan
  variables {
    istio = { a = { route_ports = [8080], callers = ["gate"] }, b = false }
  }
  expect_failures = [output.istio_of]
}

run "a_route_into_another_mesh_is_refused" {
  command = plan
  variables {
    istio = { a = { route_ports = [8080], callers = ["gate"] }, b = { trust_domain = "other.example" } }
  }
  expect_failures = [output.istio_of]
}

run "a_namespace_that_could_be_several_is_refused" {
  command = plan
  variables {
    istio = { a = { namespaces = ["shop", "books"], route_ports = [8080], callers = ["gate"] }, b = true }
  }
  expect_failures = [output.istio_of]
}

run "a_port_that_could_be_several_is_refused" {
  command = plan
  variables {
    regions = { a = { region = "r-a", namespaces = ["shop"], port = "http" }, b = { region = "r-b", namespaces = ["shop"] } }
    istio   = { a = { route_ports = [8080, 9090], callers = ["gate"] }, b = true }
  }
  expect_failures = [output.istio_of]
}

run "pods_of_several_ports_are_found_by_the_ports_name" {
  command = plan
  variables {
    services = { gate = { a = { port = 8080 }, b = { port = 8080 } } }
    istio    = { a = { route_ports = [8080, 9090], callers = ["gate"] }, b = true }
  }
  expect_failures = [output.istio_of]
}

run "an_edge_is_a_service_of_the_cluster" {
  command = plan
  variables {
    istio = { a = { filter = { url = "oci://registry.example/filter:1", sha256 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", edges = ["ledger"] } } }
  }
  expect_failures = [output.istio_of]
}

run "a_mesh_without_namespaces_is_refused" {
  command = plan
  variables {
    regions = { a = { region = "r-a" }, b = { region = "r-b" } }
    istio   = { a = true }
  }
  expect_failures = [output.istio_of]
}

run "a_misspelt_key_is_refused" {
  command = plan
  variables {
    istio    = { a = { trustDomain = "mesh.example" } }
    services = { gate = { a = { port = 0 } } }
  }
  expect_failures = [var.istio, var.services]
}

run "a_word_is_no_switch" {
  command = plan
  variables {
    istio = { a = "yes" }
  }
  expect_failures = [var.istio]
}

run "a_filter_needs_its_edges" {
  command = plan
  variables {
    istio = { a = { filter = { url = "oci://registry.example/filter:1" } } }
  }
  expect_failures = [var.istio]
}

run "a_root_is_pem_and_a_port_a_number" {
  command = plan
  variables {
    istio = { a = { root = "ca.pem" }, b = { route_ports = [70000], callers = [] } }
  }
  expect_failures = [var.istio]
}

run "a_caller_is_a_service_of_the_cluster" {
  command = plan
  variables {
    istio = { a = { route_ports = [8080], callers = ["ledger"] }, b = true }
  }
  expect_failures = [output.istio_of]
}

run "ports_without_callers_enforce_nothing" {
  command = plan
  variables {
    istio = { a = { route_ports = [8080] }, b = true }
  }
  expect_failures = [var.istio]
}
