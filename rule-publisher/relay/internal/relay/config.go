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

	"spillway.dev/relay/internal/identity"
	"spillway.dev/relay/internal/source"
)

// Config has the relay's settings, read once at start from environment variables. Each is a row of
// settings, which names its variable.
type Config struct {
	Cluster      string           // the cluster that this relay serves
	Relay        string           // the name of this relay, unique in the cluster
	NATS         source.NATS      // servers, and files of TLS
	XDSListen    string           // host:port of ADS
	XDS          identity.Files   // PEM files
	Identity     identity.Pattern // URI SAN of an Envoy
	Mesh         identity.Mesh    // optional: URI SANs of an Istio mesh's sidecars
	RulesetKeys  string           // path of the public keys of publishers (PEM)
	HealthListen string           // host:port of health, status and metrics
	StateDir     string           // a writable folder of this relay alone
	Topology     string           // path of the topology YAML
	Endpoints    string           // path of the endpoints YAML, as seen from the cluster
	Hold         time.Duration    // how long expired weights are held
	LogLevel     slog.Level       // lowest level that is logged
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

// read stores and checks the value of a setting.
func (r *reader) read(s Setting) {
	key := r.present(s)
	value := r.getenv(key)
	if value == "" {
		value = s.Default
	}
	if s.into != nil {
		*s.into = value
	}
	switch {
	case value == "" && s.Required:
		r.problems = append(r.problems, fmt.Errorf("%s: not set; must be %s", key, s.Value))
	case value != "" && s.check != nil:
		if err := s.check(value); err != nil {
			r.problems = append(r.problems, fmt.Errorf("%s: %w; must be %s", key, err, s.Value))
		}
	}
}

// present returns the name under which a setting is read. It warns about a former name that is set.
func (r *reader) present(s Setting) string {
	switch {
	case s.former == "" || r.getenv(s.former) == "":
		return s.Name
	case r.getenv(s.Name) != "":
		r.warnings = append(r.warnings, s.former+": is now "+s.Name+", which is used instead")
		return s.Name
	default:
		r.warnings = append(r.warnings, s.former+": is now "+s.Name+", the next version ignores it")
		return s.former
	}
}

// ReadConfig reads the configuration. The error lists every missing and every wrong variable.
func ReadConfig(getenv func(string) string) (Config, error) {
	var c Config
	r := &reader{getenv: getenv}
	for _, setting := range c.settings() {
		r.read(setting)
	}
	if (c.NATS.Cert == "") != (c.NATS.Key == "") {
		r.problems = append(r.problems, errors.New("SPILLWAY_NATS_CERT, SPILLWAY_NATS_KEY: one is set; must be both or none"))
	}
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
			return errors.New("nats:// in clear text to another host; must be tls://, or set SPILLWAY_PLAINTEXT=allow in an isolated network")
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
