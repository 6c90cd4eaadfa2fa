package kafkapartitionexporter

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/config/configtls"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
)

// Config is the exporter's section of the collector's configuration.
type Config struct {
	TimeoutSettings  exporterhelper.TimeoutConfig                             `mapstructure:",squash"`
	QueueBatchConfig configoptional.Optional[exporterhelper.QueueBatchConfig] `mapstructure:"sending_queue"`
	BackOffConfig    configretry.BackOffConfig                                `mapstructure:"retry_on_failure"`

	// Brokers are the brokers to connect to first, each host:port.
	Brokers []string `mapstructure:"brokers"`
	// ClientID is the name of this client in the broker's log and quotas.
	ClientID string `mapstructure:"client_id"`
	// TLS configures the connections to the brokers. It is on unless tls::insecure is true.
	TLS configtls.ClientConfig `mapstructure:"tls"`
	// SASL configures the authentication at the brokers. It is off when sasl::mechanism is empty.
	SASL SASLConfig `mapstructure:"sasl"`

	Traces  SignalConfig `mapstructure:"traces"`
	Metrics SignalConfig `mapstructure:"metrics"`

	// MaxMessageBytes limits a message before compression, including the headers of Kafka's record
	// batch. It should not exceed the broker's message.max.bytes or the topic's max.message.bytes.
	MaxMessageBytes int `mapstructure:"max_message_bytes"`
	// Compression is zstd or lz4.
	Compression string `mapstructure:"compression"`
	// PartitionsRefreshInterval is how soon added partitions are noticed.
	PartitionsRefreshInterval time.Duration `mapstructure:"partitions_refresh_interval"`

	// prevent unkeyed literal initialization
	_ struct{}
}

// SignalConfig defines where one signal is written.
type SignalConfig struct {
	Topic string `mapstructure:"topic"`
	// FlushTimeout is how long a small batch of this signal waits, in place of
	// sending_queue::batch::flush_timeout. 0: as long as that.
	FlushTimeout time.Duration `mapstructure:"flush_timeout"`

	_ struct{}
}

// SASLConfig is a user of the brokers. The password is read from its file at every authentication.
// With OAUTHBEARER, Username and PasswordFile are an OAuth client's id and secret, and the file is
// read before each request for a token.
type SASLConfig struct {
	Mechanism    string      `mapstructure:"mechanism"`
	Username     string      `mapstructure:"username"`
	PasswordFile string      `mapstructure:"password_file"`
	OAuth        OAuthConfig `mapstructure:"oauth"`

	_ struct{}
}

// OAuthConfig defines where OAUTHBEARER gets its tokens.
type OAuthConfig struct {
	// TokenURL is https://, or http:// to this machine, or http:// to another host when
	// tls::insecure is true.
	TokenURL string                 `mapstructure:"token_url"`
	Scope    string                 `mapstructure:"scope"`
	TLS      configtls.ClientConfig `mapstructure:"tls"`

	_ struct{}
}

const (
	// recordBatchBytes is more than Kafka's record batch and record headers need in addition to the
	// value.
	recordBatchBytes = 256
	minMessageBytes  = 4096
	// franz-go writes requests of up to 100 MiB, which brokers accept by default. The names of
	// topic and client need a little of that.
	maxMessageBytes = 100_000_000
	// franz-go asks for metadata at most every 2.5 s.
	minPartitionsRefresh = 5 * time.Second
)

// topicName is Kafka's own rule; see org.apache.kafka.common.internals.Topic.
var topicName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,249}$`)

var _ component.Config = (*Config)(nil)

// Validate returns everything that is wrong, each problem with its key.
func (c *Config) Validate() error {
	var wrong []error
	complain := func(format string, arguments ...any) { wrong = append(wrong, fmt.Errorf(format, arguments...)) }
	if len(c.Brokers) == 0 {
		complain("brokers: must name at least one host:port")
	}
	for _, broker := range c.Brokers {
		if host, port, err := net.SplitHostPort(broker); err != nil || host == "" || port == "" {
			complain("brokers: %q must be host:port", broker)
		}
	}
	for key, topic := range map[string]string{"traces::topic": c.Traces.Topic, "metrics::topic": c.Metrics.Topic} {
		if !topicName.MatchString(topic) || topic == "." || topic == ".." {
			complain("%s: %q must be 1 to 249 letters, digits, '.', '_' and '-'", key, topic)
		}
	}
	for key, wait := range map[string]time.Duration{
		"traces::flush_timeout": c.Traces.FlushTimeout, "metrics::flush_timeout": c.Metrics.FlushTimeout} {
		if wait < 0 {
			complain("%s: %s must be positive, or 0 for that of sending_queue", key, wait)
		}
	}
	if c.MaxMessageBytes < minMessageBytes || c.MaxMessageBytes > maxMessageBytes {
		complain("max_message_bytes: %d must be %d to %d", c.MaxMessageBytes, minMessageBytes, maxMessageBytes)
	}
	if _, known := codecs[c.Compression]; !known {
		complain("compression: %q must be zstd or lz4", c.Compression)
	}
	if c.PartitionsRefreshInterval < minPartitionsRefresh {
		complain("partitions_refresh_interval: %s must be at least %s", c.PartitionsRefreshInterval, minPartitionsRefresh)
	}
	if c.TimeoutSettings.Timeout <= 0 {
		complain("timeout: %s must be positive: a shutdown waits so long for a broker", c.TimeoutSettings.Timeout)
	}
	if c.TLS.Insecure && c.TLS.CAFile != "" {
		complain("tls::ca_file: %q has no meaning when tls::insecure is true", c.TLS.CAFile)
	}
	if c.TLS.Insecure && c.SASL.Mechanism != "" {
		complain("sasl::mechanism: %q needs TLS, and tls::insecure is true", c.SASL.Mechanism)
	}
	return errors.Join(wrong...)
}

// Validate reports problems by the keys below sasl.
func (c *SASLConfig) Validate() error {
	if c.Mechanism == "" {
		if c.Username != "" || c.PasswordFile != "" || c.OAuth.given() {
			return errors.New("mechanism: not set, but username, password_file or oauth is")
		}
		return nil
	}
	var wrong []error
	if _, known := mechanisms[c.Mechanism]; !known && c.Mechanism != oauthBearer {
		wrong = append(wrong, fmt.Errorf("mechanism: %q must be PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER", c.Mechanism))
	}
	if c.Mechanism == oauthBearer {
		wrong = append(wrong, c.OAuth.check())
	} else if c.OAuth.given() {
		wrong = append(wrong, errors.New("oauth: set, although mechanism is not OAUTHBEARER"))
	}
	if c.Username == "" {
		wrong = append(wrong, errors.New("username: not set"))
	}
	if c.PasswordFile == "" {
		wrong = append(wrong, errors.New("password_file: not set"))
	}
	return errors.Join(wrong...)
}

func (c *OAuthConfig) given() bool {
	return c.TokenURL != "" || c.Scope != "" || c.TLS.CAFile != "" || c.TLS.Insecure
}

// check never puts the URL into an error, because it may contain a password.
func (c *OAuthConfig) check() error {
	if c.TokenURL == "" {
		return errors.New("oauth::token_url: not set")
	}
	endpoint, err := url.Parse(c.TokenURL)
	if err != nil || endpoint.Hostname() == "" || endpoint.User != nil || strings.Contains(c.TokenURL, "#") ||
		(endpoint.Scheme != "https" && endpoint.Scheme != "http") {
		return errors.New("oauth::token_url: must be https://host[:port]/path, without user and fragment")
	}
	if endpoint.Scheme == "https" {
		return nil
	}
	if address := net.ParseIP(endpoint.Hostname()); endpoint.Hostname() != "localhost" && !address.IsLoopback() && !c.TLS.Insecure {
		return errors.New("oauth::token_url: http:// in clear text to another host; must be https://, or set oauth::tls::insecure to true")
	}
	if c.TLS.CAFile != "" {
		return errors.New("oauth::tls::ca_file: set, although oauth::token_url is http://, without TLS")
	}
	return nil
}
