package relay

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"spillway.dev/contracts/names"
	"spillway.dev/relay/internal/identity"
	"spillway.dev/relay/internal/source"
)

// Setting is an environment variable that the relay reads at its start. The list of all settings is
// what ReadConfig reads, and the table in REFERENCE.md is generated from it.
type Setting struct {
	Name     string
	Required bool
	Default  string // value when the variable is not set; empty: none
	Value    string // what a value must be; errors about the variable end with it
	Meaning  string // text of the table

	former string                   // former name, which is accepted for one version
	into   *string                  // where the value is stored, also a wrong one; may be nil
	check  func(value string) error // checks or parses a value that is not empty; may be nil
}

// Settings returns all settings, in the order in which they are read.
func Settings() []Setting { return (&Config{}).settings() }

// settings returns all settings, in the order in which they are read into c.
func (c *Config) settings() []Setting {
	return slices.Concat(c.identitySettings(), c.natsSettings(), c.xdsSettings(), c.fileSettings(), c.tuning())
}

func (c *Config) identitySettings() []Setting {
	return []Setting{
		{Name: "SPILLWAY_CLUSTER", Required: true, into: &c.Cluster, check: checkCluster,
			Value:   "the name of the relay's own cluster",
			Meaning: "name as in the topology: characters `A-Z a-z 0-9 _ -`"},
		{Name: "SPILLWAY_RELAY", Required: true, into: &c.Relay, check: checkRelay,
			Value:   "the name of this relay, which no other relay of the cluster has and which a restart keeps",
			Meaning: "1 to 253 of `A-Z a-z 0-9 . _ -`; in Kubernetes the name of the pod"},
	}
}

func (c *Config) natsSettings() []Setting {
	var plaintext string
	checkURL := func(value string) error {
		inClear := checkInClear(value, c.NATS.CA != "" || plaintext == "allow")
		return errors.Join(checkNatsURL(value, source.User(c.Cluster)), inClear)
	}
	return []Setting{
		{Name: "SPILLWAY_PLAINTEXT", into: &plaintext, check: checkPlaintext,
			Value:   "allow, or not set",
			Meaning: "permits `nats://` towards any host, for an isolated network"},
		{Name: "SPILLWAY_NATS_CA", into: &c.NATS.CA,
			Value:   "a path (PEM), or system",
			Meaning: "the only trusted authorities of the servers; `system`: the machine's root certificates; either requires TLS"},
		{Name: "SPILLWAY_NATS_URL", Required: true, into: &c.NATS.URL, check: checkURL,
			Value:   "tls://user:pass@host:port, several separated by commas; nats:// in clear towards this machine only",
			Meaning: "servers of NATS; the user is `relay-<cluster>`"},
		{Name: "SPILLWAY_NATS_CERT", into: &c.NATS.Cert,
			Value:   "a path (PEM)",
			Meaning: "client certificate; needs `SPILLWAY_NATS_KEY`"},
		{Name: "SPILLWAY_NATS_KEY", into: &c.NATS.Key,
			Value:   "a path (PEM)",
			Meaning: "key of the client certificate; needs `SPILLWAY_NATS_CERT`"},
	}
}

func (c *Config) xdsSettings() []Setting {
	return []Setting{
		{Name: "SPILLWAY_XDS_LISTEN", Required: true, into: &c.XDSListen, check: checkHostPort,
			Value:   "host:port",
			Meaning: "address of ADS (gRPC)"},
		{Name: "SPILLWAY_XDS_CERT", Required: true, into: &c.XDS.Cert,
			Value:   "the path of the relay's certificate (PEM)",
			Meaning: "server certificate: the DNS names that Envoys connect to, and the URI SAN that they check"},
		{Name: "SPILLWAY_XDS_KEY", Required: true, into: &c.XDS.Key,
			Value:   "the path of the certificate's key (PEM)",
			Meaning: "key of the server certificate"},
		{Name: "SPILLWAY_XDS_CLIENT_CA", Required: true, into: &c.XDS.ClientCA,
			Value:   "the path of the authorities of Envoys' certificates (PEM)",
			Meaning: "authorities that Envoys' certificates chain to"},
		{Name: "SPILLWAY_XDS_IDENTITY", Required: true, check: c.parseIdentity,
			Value:   "the URI SAN of an Envoy's certificate with {cluster} and {service}",
			Meaning: "each placeholder once, e.g. `spiffe://spillway.local/cluster/{cluster}/service/{service}`"},
		{Name: "SPILLWAY_XDS_MESH", check: c.parseMesh,
			Value:   "URI SANs of sidecars of Istio, separated by commas",
			Meaning: "sidecars to admit, each `spiffe://<trust domain>/ns/<namespace>/sa/{service}`"},
	}
}

func (c *Config) fileSettings() []Setting {
	return []Setting{
		{Name: "SPILLWAY_RULESET_KEYS", Required: true, into: &c.RulesetKeys,
			Value:   "the path of the publishers' public keys (PEM, Ed25519)",
			Meaning: "one or more keys (SPKI) whose rulesets are accepted"},
		{Name: "SPILLWAY_HEALTH_LISTEN", Required: true, into: &c.HealthListen, check: checkHostPort,
			Value:   "host:port",
			Meaning: "address of health, status and metrics (plain HTTP, no secrets)"},
		{Name: "SPILLWAY_STATE_DIR", Required: true, into: &c.StateDir,
			Value:   "the path of a writable folder",
			Meaning: "folder of this relay alone"},
		{Name: "SPILLWAY_TOPOLOGY", Required: true, into: &c.Topology,
			Value:   "the path of the topology YAML",
			Meaning: "`spillway.v1.Topology`"},
		{Name: "SPILLWAY_ENDPOINTS", Required: true, into: &c.Endpoints,
			Value:   "the path of the endpoints YAML",
			Meaning: "`spillway.v1.Endpoints` as seen from this cluster"},
	}
}

func (c *Config) tuning() []Setting {
	return []Setting{
		{Name: "SPILLWAY_RELAY_RULESET_HOLD_S", former: "SPILLWAY_RULESET_HOLD_SECONDS",
			Default: strconv.Itoa(names.ValueHoldSeconds), check: c.parseHold,
			Value:   fmt.Sprintf("0..%d seconds", maxHoldSeconds),
			Meaning: "how long the weights of an expired ruleset are held"},
		{Name: "SPILLWAY_RELAY_LOG_LEVEL", former: "SPILLWAY_LOG_LEVEL",
			Default: "info", check: c.parseLogLevel,
			Value:   "debug, info, warn or error",
			Meaning: "level of the logs, which are JSON lines on stderr"},
	}
}

func (c *Config) parseIdentity(value string) (err error) {
	c.Identity, err = identity.ParsePattern(value)
	return err
}

func (c *Config) parseMesh(value string) (err error) {
	c.Mesh, err = identity.ParseMesh(value)
	return err
}

func (c *Config) parseHold(value string) error {
	seconds, err := strconv.ParseUint(value, 10, 32)
	if err != nil || seconds > maxHoldSeconds {
		return fmt.Errorf("%q", value)
	}
	c.Hold = time.Duration(seconds) * time.Second
	return nil
}

func (c *Config) parseLogLevel(value string) error { return c.LogLevel.UnmarshalText([]byte(value)) }
