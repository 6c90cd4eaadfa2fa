INSERT INTO rules (at, version, ruleset_id, source_cluster, source_service, class, destination_cluster, weight,
                   predicted_compute_ms, predicted_network_ms, reason) VALUES
