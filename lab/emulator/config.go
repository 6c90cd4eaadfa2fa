package main

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Config is the configuration of one pod, read from its environment. No value has a default; only
// CollectorTLS and LoadReportWindow may be unset.
type Config struct {
	Cluster, Service, Pod string
	ApplicationPath       string
	Listen                string // address of the application itself
	Outbound              string // address of the sidecar's outbound listener
	Collector             string // OTLP gRPC, metrics
	CollectorTLS          CollectorTLS
	HealthListen          string
	LoadReportWindow      time.Duration // over which answers report the pod's load; 0: they do not
}

// ReadConfig reads the environment and returns every problem in it. Each problem names its
// variable.
func ReadConfig(getenv func(string) string) (Config, []string) {
	var problems []string
	text := func(key string) string {
		value := strings.TrimSpace(getenv(key))
		if value == "" {
			problems = append(problems, key+": not set; it has no default")
		}
		return value
	}
	name := func(key string) string {
		value := text(key)
		// ',', '@' and '+' have a meaning in the path header.
		if strings.ContainsAny(value, ",@+ |") {
			problems = append(problems, fmt.Sprintf("%s: %q; allowed: no ',', '@', '+', '|' and spaces", key, value))
		}
		return value
	}
	address := func(key string) string {
		value := text(key)
		if value != "" {
			if err := checkAddress(value); err != nil {
				problems = append(problems, fmt.Sprintf("%s: %q: %v; allowed: host:port", key, value, err))
			}
		}
		return value
	}
	config := Config{
		Cluster:         name("SPILLWAY_CLUSTER"),
		Service:         name("SPILLWAY_SERVICE"),
		Pod:             name("SPILLWAY_POD"),
		ApplicationPath: text("LAB_APPLICATION"),
		Listen:          address("LAB_LISTEN"),
		Outbound:        address("SPILLWAY_OUTBOUND"),
		Collector:       address("SPILLWAY_COLLECTOR"),
		HealthListen:    address("SPILLWAY_HEALTH_LISTEN"),
	}
	files, more := readCollectorTLS(getenv)
	config.CollectorTLS = files
	window, problem := loadReportWindow(getenv)
	config.LoadReportWindow = window
	return config, append(append(problems, more...), problem...)
}

// loadReportWindow reads LAB_LOAD_REPORT_WINDOW_MS. Without it answers carry no load report.
func loadReportWindow(getenv func(string) string) (time.Duration, []string) {
	const key = "LAB_LOAD_REPORT_WINDOW_MS"
	value := strings.TrimSpace(getenv(key))
	if value == "" {
		return 0, nil
	}
	ms, err := strconv.ParseFloat(value, 64)
	if err != nil || !(ms >= 1 && ms <= 3_600_000) {
		return 0, []string{fmt.Sprintf("%s: %q; allowed: 1 to 3600000, or unset for no reports", key, value)}
	}
	return time.Duration(ms * float64(time.Millisecond)), nil
}

func checkAddress(value string) error {
	host, port, err := net.SplitHostPort(value)
	if err != nil {
		return err
	}
	if host == "" {
		return fmt.Errorf("the host is empty")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("port %q is not 1..65535", port)
	}
	return nil
}

// serviceOf returns the pod's own service from the application.
func (c Config) serviceOf(application Application) (Service, []string) {
	service, known := application.Services[c.Service]
	if !known {
		return Service{}, []string{fmt.Sprintf("SPILLWAY_SERVICE: unknown service %q; allowed: %s",
			c.Service, strings.Join(slices.Sorted(maps.Keys(application.Services)), ", "))}
	}
	return service, nil
}
