package relay

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"spillway.dev/contracts/names"
	"spillway.dev/relay/internal/identity"
	"spillway.dev/relay/internal/source"
)

// Config has the relay's settings, read once at start from environment variables. Only those marked
// optional may be absent.
type Config struct {
	Cluster      string           // SPILLWAY_CLUSTER: the cluster that this relay serves
	Relay        string           // SPILLWAY_RELAY: the name of this relay, unique in the cluster
	NATS         source.NATS      // SPILLWAY_NATS_URL; optional: _NATS_CA, _NATS_CERT, _NATS_KEY
	XDSListen    string           // SPILLWAY_XDS_LISTEN: host:port of ADS
	XDS          identity.Files   // SPILLWAY_XDS_CERT, _XDS_KEY, _XDS_CLIENT_CA: PEM files
	Identity     identity.Pattern // SPILLWAY_XDS_IDENTITY: URI SAN of an Envoy
	Mesh         identity.Mesh    // SPILLWAY_XDS_MESH: optional, URI SANs of an Istio mesh's sidecars
	RulesetKeys  string           // SPILLWAY_RULESET_KEYS: path of the public keys of publishers (PEM)
	HealthListen string           // SPILLWAY_HEALTH_LISTEN: host:port of health, status and metrics
	StateDir     string           // SPILLWAY_STATE_DIR: a writable folder of this relay alone
	Topology     string           // SPILLWAY_TOPOLOGY: path of the topology YAML
	Endpoints    string           // SPILLWAY_ENDPOINTS: path of the endpoints YAML, as seen from the cluster
	Hold         time.Duration    // SPILLWAY_RELAY_RULESET_HOLD_S: optional, how long expired weights are held
	LogLevel     slog.Level       // SPILLWAY_RELAY_LOG_LEVEL: optional, info by default
	Warnings     []string         // one line per variable that is set under its former name
}

const maxHoldSeconds = 30 * 24 * 3600

// clusterName matches the characters allowed in the name of a cluster.
var clusterName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// relayName matches names of Kubernetes pods, because a relay there has its pod's name.
var relayName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,253}$`)

// reader reads variables and collects all problems, so that they are listed at once.
type reader struct {
	getenv   func(string) string
	problems []error
	warnings []string
}

// need reads a required variable.
func (r *reader) need(key, what string, check func(string) error) string {
	value := r.getenv(key)
	if value == "" {
		r.problems = append(r.problems, fmt.Errorf("%s: not set; must be %s", key, what))
		return ""
	}
	return r.may(key, what, check)
}

// may reads an optional variable.
func (r *reader) may(key, what string, check func(string) error) string {
	value := r.getenv(key)
	if value != "" && check != nil {
		if err := check(value); err != nil {
			r.problems = append(r.problems, fmt.Errorf("%s: %w; must be %s", key, err, what))
		}
	}
	return value
}

// tune reads an optional variable that is accepted under its former name for one version.
func (r *reader) tune(key, was, what string, check func(string) error) {
	old := r.getenv(was)
	switch {
	case old == "":
	case r.getenv(key) != "":
		r.warnings = append(r.warnings, was+": is now "+key+", which is used instead")
	default:
		r.warnings = append(r.warnings, was+": is now "+key+", the next version ignores it")
		key = was
	}
	r.may(key, what, check)
}

// ReadConfig reads the configuration. The error lists every missing and every wrong variable.
func ReadConfig(getenv func(string) string) (Config, error) {
	var c Config
	r := &reader{getenv: getenv}
	c.Cluster = r.need("SPILLWAY_CLUSTER", "the name of the relay's own cluster", checkCluster)
	c.Relay = r.need("SPILLWAY_RELAY", "the name of this relay, which no other relay of the cluster has and which a restart keeps", checkRelay)
	plaintext := r.may("SPILLWAY_PLAINTEXT", "allow, or not set", checkPlaintext)
	c.NATS.CA = r.may("SPILLWAY_NATS_CA", "", nil)
	c.NATS.URL = r.need("SPILLWAY_NATS_URL", "tls://user:pass@host:port, several separated by commas; nats:// in clear towards this machine only", func(value string) error {
		return errors.Join(checkNatsURL(value, source.User(c.Cluster)), checkInClear(value, c.NATS.CA != "" || plaintext == "allow"))
	})
	c.NATS.Cert = r.may("SPILLWAY_NATS_CERT", "", nil)
	c.NATS.Key = r.may("SPILLWAY_NATS_KEY", "", nil)
	if (c.NATS.Cert == "") != (c.NATS.Key == "") {
		r.problems = append(r.problems, errors.New("SPILLWAY_NATS_CERT, SPILLWAY_NATS_KEY: one is set; must be both or none"))
	}
	c.XDSListen = r.need("SPILLWAY_XDS_LISTEN", "host:port", checkHostPort)
	c.XDS.Cert = r.need("SPILLWAY_XDS_CERT", "the path of the relay's certificate (PEM)", nil)
	c.XDS.Key = r.need("SPILLWAY_XDS_KEY", "the path of the certificate's key (PEM)", nil)
	c.XDS.ClientCA = r.need("SPILLWAY_XDS_CLIENT_CA", "the path of the authorities of Envoys' certificates (PEM)", nil)
	r.need("SPILLWAY_XDS_IDENTITY", "the URI SAN of an Envoy's certificate with {cluster} and {service}", func(value string) (err error) {
		c.Identity, err = identity.ParsePattern(value)
		return err
	})
	r.may("SPILLWAY_XDS_MESH", "URI SANs of sidecars of Istio, separated by commas", func(value string) (err error) {
		c.Mesh, err = identity.ParseMesh(value)
		return err
	})
	c.RulesetKeys = r.need("SPILLWAY_RULESET_KEYS", "the path of the publishers' public keys (PEM, Ed25519)", nil)
	c.HealthListen = r.need("SPILLWAY_HEALTH_LISTEN", "host:port", checkHostPort)
	c.StateDir = r.need("SPILLWAY_STATE_DIR", "the path of a writable folder", nil)
	c.Topology = r.need("SPILLWAY_TOPOLOGY", "the path of the topology YAML", nil)
	c.Endpoints = r.need("SPILLWAY_ENDPOINTS", "the path of the endpoints YAML", nil)
	c.Hold = names.ValueHoldSeconds * time.Second
	r.tune("SPILLWAY_RELAY_RULESET_HOLD_S", "SPILLWAY_RULESET_HOLD_SECONDS", "0..2592000 seconds", func(value string) error {
		seconds, err := strconv.ParseUint(value, 10, 32)
		if err != nil || seconds > maxHoldSeconds {
			return fmt.Errorf("%q", value)
		}
		c.Hold = time.Duration(seconds) * time.Second
		return nil
	})
	r.tune("SPILLWAY_RELAY_LOG_LEVEL", "SPILLWAY_LOG_LEVEL", "debug, info, warn or error", func(value string) error {
		return c.LogLevel.UnmarshalText([]byte(value))
	})
	c.Warnings = r.warnings
	return c, errors.Join(r.problems...)
}

func checkCluster(value string) error {
	if !clusterName.MatchString(value) {
		return fmt.Errorf("%q has characters outside A-Z a-z 0-9 _ -", value)
	}
	return nil
}

func checkRelay(value string) error {
	if !relayName.MatchString(value) {
		return fmt.Errorf("%q is not 1 to 253 of A-Z a-z 0-9 . _ -", value)
	}
	return nil
}

// checkNatsURL returns an error for a URL that is not valid or names a user other than `user`,
// because another user has rights that a relay must not have. The error never contains the value,
// which has a password in it.
func checkNatsURL(value, user string) error {
	for _, one := range strings.Split(value, ",") {
		parsed, err := url.Parse(strings.TrimSpace(one))
		if err != nil || parsed.Host == "" || (parsed.Scheme != "nats" && parsed.Scheme != "tls") {
			return errors.New("not a NATS URL")
		}
		if parsed.User != nil && parsed.User.Username() != user {
			return fmt.Errorf("another user than this cluster's relay, %q", user)
		}
	}
	return nil
}

func checkPlaintext(value string) error {
	if value != "allow" {
		return fmt.Errorf("%q", value)
	}
	return nil
}

// checkInClear returns an error for a URL that would send the password in clear to another host.
// `allowed` permits it: the network is isolated, or an authority is given, which makes the client
// require TLS.
func checkInClear(value string, allowed bool) error {
	for _, one := range strings.Split(value, ",") {
		parsed, err := url.Parse(strings.TrimSpace(one))
		if err != nil || parsed.Scheme != "nats" || allowed {
			continue
		}
		if host := parsed.Hostname(); host != "localhost" && !net.ParseIP(host).IsLoopback() {
			return errors.New("nats:// in clear to another host; must be tls://, or SPILLWAY_PLAINTEXT=allow in a network of its own")
		}
	}
	return nil
}

func checkHostPort(value string) error {
	_, port, err := net.SplitHostPort(value)
	if err != nil {
		return err
	}
	if number, err := strconv.ParseUint(port, 10, 16); err != nil || number > 65535 {
		return fmt.Errorf("port %q is not 0..65535", port)
	}
	return nil
}
