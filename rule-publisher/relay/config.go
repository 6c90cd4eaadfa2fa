package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strconv"
)

// config is read once at start from environment variables; none has a default.
type config struct {
	Cluster      string // SPILLWAY_CLUSTER: the cluster that this relay serves
	NatsURL      string // SPILLWAY_NATS_URL: nats://user:pass@host:port
	XDSListen    string // SPILLWAY_XDS_LISTEN: host:port of ADS
	HealthListen string // SPILLWAY_HEALTH_LISTEN: host:port of /healthz and /status
	StateDir     string // SPILLWAY_STATE_DIR: own writable folder
	Topology     string // SPILLWAY_TOPOLOGY: path of the topology YAML
	Endpoints    string // SPILLWAY_ENDPOINTS: path of the endpoints YAML, as seen from the cluster
}

var clusterName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// readConfig lists every missing or wrong variable at once.
func readConfig(getenv func(string) string) (config, error) {
	var c config
	var problems []error
	read := func(into *string, key, what string, check func(string) error) {
		*into = getenv(key)
		if *into == "" {
			problems = append(problems, fmt.Errorf("%s: not set; must be %s", key, what))
		} else if err := check(*into); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w; must be %s", key, err, what))
		}
	}
	anything := func(string) error { return nil }
	read(&c.Cluster, "SPILLWAY_CLUSTER", "the name of the relay's own cluster", func(value string) error {
		if !clusterName.MatchString(value) {
			return fmt.Errorf("%q has characters outside A-Z a-z 0-9 _ -", value)
		}
		return nil
	})
	read(&c.NatsURL, "SPILLWAY_NATS_URL", "nats://user:pass@host:port", checkNatsURL)
	read(&c.XDSListen, "SPILLWAY_XDS_LISTEN", "host:port", checkHostPort)
	read(&c.HealthListen, "SPILLWAY_HEALTH_LISTEN", "host:port", checkHostPort)
	read(&c.StateDir, "SPILLWAY_STATE_DIR", "the path of a writable folder", anything)
	read(&c.Topology, "SPILLWAY_TOPOLOGY", "the path of the topology YAML", anything)
	read(&c.Endpoints, "SPILLWAY_ENDPOINTS", "the path of the endpoints YAML", anything)
	return c, errors.Join(problems...)
}

// checkNatsURL never repeats the value, which holds a password.
func checkNatsURL(value string) error {
	parsed, err := url.Parse(value)
	if err != nil || parsed.Host == "" || (parsed.Scheme != "nats" && parsed.Scheme != "tls") {
		return errors.New("not a NATS URL")
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
