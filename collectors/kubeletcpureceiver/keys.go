package kubeletcpureceiver

// Key is a key of the configuration: a row of the table in collectors/AGENT.md.
type Key struct{ Name, Meaning string }

// Keys returns all keys of the receiver's own, and those of its helpers that matter. The table in
// collectors/AGENT.md is generated from them, with the defaults of the factory.
func Keys() []Key {
	return []Key{
		{"endpoint", "`https://host:port` of the kubelet"},
		{"collection_interval", "time between two requests"},
		{"timeout", "of a request"},
		{"tls::ca_file", "PEM bundle that the kubelet's certificate must chain to"},
		{"token_file", "file with the bearer token, which is read at every request"},
		{"service_label", "pod label whose value is the service's name"},
		{"sidecars", "names of containers that are never the service itself"},
	}
}
