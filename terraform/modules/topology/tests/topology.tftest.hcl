variables {
  regions = {
    a = { region = "r-a", links = { b = { rtt_ms = 25, egress_usd_per_gb = 0.02 } } }
    b = { region = "r-b", links = { a = { rtt_ms = 30 } } }
  }
  services                        = { api = { a = { threshold_rps = 90 }, b = {} } }
  usd_per_ms_per_million_requests = 0.1
}

run "one_map_becomes_the_topology" {
  command = plan

  assert {
    condition     = output.topology.links[0].rtt_ms == 25 && output.topology.links[1].egress_usd_per_gb == 0
    error_message = "links keep their direction; the price's default is 0"
  }
  assert {
    condition     = yamldecode(output.yaml).services[0].placements[0].threshold_rps == 90
    error_message = "placements keep their threshold"
  }
}

run "a_declared_autoscaler_is_in_the_topology" {
  command = plan
  variables {
    services = { api = { a = { autoscaler = { target_utilisation = 0.6, max_pods = 10 } }, b = {} } }
  }

  assert {
    condition     = yamldecode(output.yaml).services[0].placements[0].autoscaler.max_pods == 10
    error_message = "placements keep their autoscaler"
  }
  assert {
    condition     = !contains(keys(yamldecode(output.yaml).services[0].placements[1]), "autoscaler")
    error_message = "without one, none is declared"
  }
}

run "a_target_is_a_share" {
  command = plan
  variables {
    services = { api = { a = { autoscaler = { target_utilisation = 60, max_pods = 10 } } } }
  }
  expect_failures = [var.services]
}

run "a_link_to_nowhere_is_refused" {
  command = plan
  variables {
    regions = { a = { region = "r", links = { nowhere = { rtt_ms = 1 } } } }
  }
  expect_failures = [var.regions]
}

run "a_placement_nowhere_is_refused" {
  command = plan
  variables {
    services = { api = { nowhere = {} } }
  }
  expect_failures = [output.topology]
}

run "an_entry_is_a_domain_and_a_port" {
  command = plan
  variables {
    regions  = { a = { region = "r", entry = { domain = "https://a.example", port = 70000 } } }
    services = { api = { a = { threshold_rps = -1 } } }
  }
  expect_failures = [var.regions, var.services]
}

run "a_price_has_no_default" {
  command = plan
  variables {
    usd_per_ms_per_million_requests = 0
  }
  expect_failures = [var.usd_per_ms_per_million_requests]
}

run "a_link_of_both_ways_leads_back" {
  command = plan
  variables {
    regions = {
      a = { region = "r-a" }
      b = { region = "r-b", links = { a = { rtt_ms = 30, egress_usd_per_gb = 0.01, both_ways = true } } }
    }
  }
  assert {
    condition     = [for link in output.topology.links : "${link.source_cluster}>${link.destination_cluster} ${link.rtt_ms}"] == ["a>b 30", "b>a 30"]
    error_message = "one entry, two directed links"
  }
}

run "a_drained_cluster_is_in_its_own_topology_alone" {
  command = plan
  variables {
    regions = {
      a = { region = "r-a", entry = { domain = "a.example", port = 8443 }, links = { b = { rtt_ms = 25, both_ways = true } } }
      b = { region = "r-b", drained = true, entry = { domain = "b.example", port = 8443 }, namespaces = ["shop"] }
    }
  }
  assert {
    condition     = output.yaml == output.yaml_of["a"] && !strcontains(output.yaml, "cluster\": \"b") && strcontains(output.yaml_of["b"], "\"name\": \"b\"")
    error_message = "a is without b, b knows both"
  }
  assert {
    condition     = length(yamldecode(output.endpoints_of["a"]).services) == 0 && yamldecode(output.endpoints_of["b"]).services[0].names == ["api.a.example:8443"]
    error_message = "a sends nothing to b, b still finds a"
  }
  assert {
    condition     = yamldecode(output.endpoints_of["b"]).kubernetes[0].namespaces == ["shop"]
    error_message = "b's own pods are read from its API server"
  }
}
