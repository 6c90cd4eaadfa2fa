INSERT INTO acknowledgements (at, cluster, service, envoy, version, type_url, outcome, detail) VALUES
