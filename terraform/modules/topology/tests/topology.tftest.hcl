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

run "a_price_has_no_default" {
  command = plan
  variables {
    usd_per_ms_per_million_requests = 0
  }
  expect_failures = [var.usd_per_ms_per_million_requests]
}
