package kafkapartitionexporter

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configtls"
	"go.opentelemetry.io/collector/confmap/confmaptest"
	"go.opentelemetry.io/collector/confmap/xconfmap"
)

func load(t *testing.T, name string) *Config {
	t.Helper()
	file, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	section, err := file.Sub(name)
	if err != nil {
		t.Fatal(err)
	}
	config := createDefaultConfig().(*Config)
	if err := section.Unmarshal(config); err != nil {
		t.Fatal(err)
	}
	return config
}

// TestConfigurationIsRead checks that every key reaches its field, and that all samples are valid.
// With brokers alone, TLS is on.
func TestConfigurationIsRead(t *testing.T) {
	for _, name := range []string{"kafka_partition", "kafka_partition/all", "kafka_partition/oauth"} {
		if err := xconfmap.Validate(load(t, name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if load(t, "kafka_partition").TLS.Insecure {
		t.Error("TLS is off without having been switched off")
	}
	got := load(t, "kafka_partition/all")
	storage := component.MustNewID("file_storage")
	if len(got.Brokers) != 2 || got.ClientID != "collector-west" || got.TimeoutSettings.Timeout != 3*time.Second ||
		got.TLS.CAFile != "/etc/ca.pem" || got.TLS.ReloadInterval != time.Minute ||
		got.SASL.Mechanism != "SCRAM-SHA-512" || got.SASL.Username != "west" || got.SASL.PasswordFile != "/etc/password" ||
		got.Traces.Topic != "spans" || got.Metrics.Topic != "points" || got.MaxMessageBytes != 4_000_000 ||
		got.Compression != "lz4" || got.PartitionsRefreshInterval != 30*time.Second ||
		got.BackOffConfig.MaxElapsedTime != 0 || *got.QueueBatchConfig.Get().StorageID != storage {
		t.Errorf("%+v", got)
	}
	oauth := load(t, "kafka_partition/oauth").SASL.OAuth
	if oauth.TokenURL != "https://login.test/token?tenant=1" || oauth.Scope != "kafka" || oauth.TLS.CAFile != "/etc/login.pem" {
		t.Errorf("%+v", oauth)
	}
}

// TestWrongConfigurationNamesItsKey checks that each wrong value is refused with an error that
// names its YAML key and shows the value.
func TestWrongConfigurationNamesItsKey(t *testing.T) {
	for message, spoil := range map[string]func(*Config){
		"brokers: must name":                func(c *Config) { c.Brokers = nil },
		`brokers: "kafka" must be`:          func(c *Config) { c.Brokers = []string{"kafka"} },
		`traces::topic: "a b" must be`:      func(c *Config) { c.Traces.Topic = "a b" },
		`metrics::topic: ".." must be`:      func(c *Config) { c.Metrics.Topic = ".." },
		"metrics::flush_timeout: -1s must":  func(c *Config) { c.Metrics.FlushTimeout = -time.Second },
		"max_message_bytes: 100 must be":    func(c *Config) { c.MaxMessageBytes = 100 },
		`compression: "gzip" must be`:       func(c *Config) { c.Compression = "gzip" },
		"partitions_refresh_interval: 1s":   func(c *Config) { c.PartitionsRefreshInterval = time.Second },
		"timeout: 0s must be":               func(c *Config) { c.TimeoutSettings.Timeout = 0 },
		"tls::ca_file:":                     func(c *Config) { c.TLS.Insecure = true },
		`sasl::mechanism: "SCRAM-SHA-512"`:  func(c *Config) { c.TLS = insecure() },
		`sasl: mechanism: "GSSAPI" must be`: func(c *Config) { c.SASL.Mechanism = "GSSAPI" },
		"sasl: mechanism: not set":          func(c *Config) { c.SASL.Mechanism = "" },
		"sasl: username: not set":           func(c *Config) { c.SASL.Username = "" },
		"password_file: not set":            func(c *Config) { c.SASL.PasswordFile = "" },
		"tls: TLS configuration must":       func(c *Config) { c.TLS.KeyFile = "" },
	} {
		config := load(t, "kafka_partition/all")
		spoil(config)
		if err := xconfmap.Validate(config); err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("want %q, got: %v", message, err)
		}
	}
}

// TestWrongTokenEndpointsAreRefused checks that the error names the key but not the value, which
// may contain a password.
func TestWrongTokenEndpointsAreRefused(t *testing.T) {
	const form, clear = "sasl: oauth::token_url: must be https://", "sasl: oauth::token_url: http:// in clear"
	for url, message := range map[string]string{
		"":                                   "sasl: oauth::token_url: not set",
		"login.test/token":                   form,
		"ftp://login.test/token":             form,
		"https://":                           form,
		"https://west:top-secret@login.test": form,
		"https://login.test/#top-secret":     form,
		"https://login.test:port/top-secret": form,
		"http://login.test/token":            clear,
		"http://127.0.0.1.login.test/token":  clear,
		"http://localhost:8080/token":        "sasl: oauth::tls::ca_file: set, although",
	} {
		config := load(t, "kafka_partition/oauth")
		config.SASL.OAuth.TokenURL = url
		err := xconfmap.Validate(config)
		if err == nil || !strings.Contains(err.Error(), message) || strings.Contains(err.Error(), "top-secret") {
			t.Errorf("%q: want %q, got: %v", url, message, err)
		}
	}
	config := load(t, "kafka_partition/oauth")
	config.SASL.OAuth.TLS = configtls.ClientConfig{}
	for _, config.SASL.OAuth.TokenURL = range []string{"http://localhost/token", "http://[::1]:8080/token"} {
		if err := xconfmap.Validate(config); err != nil {
			t.Error(err)
		}
	}
	config.SASL.OAuth.TokenURL, config.SASL.OAuth.TLS = "http://login.test/token", insecure()
	if err := xconfmap.Validate(config); err != nil {
		t.Error(err)
	}
	for _, mechanism := range []string{"", "PLAIN"} {
		config = load(t, "kafka_partition/oauth")
		config.SASL.Mechanism = mechanism
		if err := xconfmap.Validate(config); err == nil || !strings.Contains(err.Error(), "oauth") {
			t.Errorf("%q: %v", mechanism, err)
		}
	}
}

// TestSmallBatchesOfASignalWaitForItsOwnTime checks that metrics have their own time, that spans have
// the common one, and that a queue without batches stays without.
func TestSmallBatchesOfASignalWaitForItsOwnTime(t *testing.T) {
	config := load(t, "kafka_partition/all")
	for want, signal := range map[time.Duration]SignalConfig{
		200 * time.Millisecond: config.Traces, 50 * time.Millisecond: config.Metrics} {
		queue := queueOf(signal, config.QueueBatchConfig)
		if got := queue.Get().Batch.Get().FlushTimeout; got != want || *queue.Get().StorageID != component.MustNewID("file_storage") {
			t.Errorf("%s: waits %s; must be %s", signal.Topic, got, want)
		}
	}
	plain := load(t, "kafka_partition").QueueBatchConfig
	if plain = queueOf(config.Metrics, plain); plain.Get().Batch.HasValue() {
		t.Error("batches were switched on")
	}
}

// TestAllThatIsWrongIsListed checks that one start reports every mistake.
func TestAllThatIsWrongIsListed(t *testing.T) {
	config := load(t, "kafka_partition")
	config.Brokers, config.Compression, config.MaxMessageBytes = nil, "", 0
	err := xconfmap.Validate(config)
	for _, key := range []string{"brokers:", "compression:", "max_message_bytes:"} {
		if err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s is not named in: %v", key, err)
		}
	}
}

// TestThePasswordIsReadAnew checks that a rotated password is used from the next authentication on,
// and that an empty file is an error.
func TestThePasswordIsReadAnew(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	config := SASLConfig{Mechanism: "PLAIN", Username: "west", PasswordFile: file}
	for _, want := range []string{"first", "second ${env:HOME} #"} {
		if err := os.WriteFile(file, []byte(want+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if user, password, err := config.credentials(); user != "west" || password != want || err != nil {
			t.Errorf("%q %q %v", user, password, err)
		}
	}
	if err := os.WriteFile(file, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := config.credentials(); err == nil {
		t.Error("an empty password is taken")
	}
}

func insecure() configtls.ClientConfig {
	off := configtls.NewDefaultClientConfig()
	off.Insecure = true
	return off
}
