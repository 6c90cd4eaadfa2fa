package kafkapartitionexporter

import "fmt"

// Key is a key of the configuration: a row of the table in README.md.
type Key struct{ Name, Meaning string }

// Keys returns all keys of the exporter's own, and those of the exporter helper that matter. The
// table in README.md is generated from them, with the defaults of the factory.
func Keys() []Key {
	return []Key{
		{"brokers", "list of `host:port`"},
		{"client_id", "name in the broker's log and quotas"},
		{"traces::topic", "topic of spans"},
		{"metrics::topic", "topic of metrics"},
		{"traces::flush_timeout", "how long a small batch of spans waits; 0: `sending_queue::batch::flush_timeout`"},
		{"metrics::flush_timeout", "the same for metrics"},
		{"max_message_bytes", fmt.Sprintf("limit of a message before compression, including Kafka's headers; %d to %d",
			minMessageBytes, maxMessageBytes)},
		{"compression", "or `lz4`; a batch that compression would not shrink is sent uncompressed"},
		{"partitions_refresh_interval", fmt.Sprintf("how soon added partitions are noticed; at least %s", minPartitionsRefresh)},
		{"timeout", "of a request at the broker"},
		{"tls", "[configtls](https://pkg.go.dev/go.opentelemetry.io/collector/config/configtls) client settings; " +
			"TLS is on unless `insecure: true`"},
		{"sasl::mechanism", "`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`, `OAUTHBEARER`; unset: off; only over TLS"},
		{"sasl::username", "user; with `OAUTHBEARER` the client id"},
		{"sasl::password_file", "file with the password; with `OAUTHBEARER` the client secret"},
		{"sasl::oauth::token_url", "with `OAUTHBEARER`: endpoint of the client credentials grant, `https://`"},
		{"sasl::oauth::scope", "the requested scope, if the endpoint needs one"},
		{"sasl::oauth::tls", "configtls settings for the endpoint"},
		{"retry_on_failure", "those of the exporter helper"},
		{"sending_queue", "those of the exporter helper; with `sending_queue::storage` accepted data survives this process"},
	}
}
