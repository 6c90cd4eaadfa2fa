package table

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"spillway.dev/contracts/names"
	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/table/traffic"
)

// loadReportORCA is the value of load_report when backends report their load by ORCA in each
// response.
const loadReportORCA = "orca"

const (
	maxNames          = 16 // of one place
	maxRefreshSeconds = 3600
)

// declaration is one declared place: its addresses, and whether it also has names to look up.
type declaration struct {
	addresses []Endpoint
	named     bool
}

// checkTopology returns the region of each cluster, and every problem of the topology.
func checkTopology(cluster string, topology *spillwayv1.Topology) (regions map[string]string, problems []error) {
	regions = map[string]string{}
	for i, c := range topology.GetClusters() {
		if _, twice := regions[c.GetName()]; twice {
			problems = append(problems, fmt.Errorf("topology clusters[%d].name: %q is listed twice", i, c.GetName()))
		}
		if c.GetName() == "" || strings.ContainsAny(c.GetName(), names.XdsClusterSeparator+". ") {
			problems = append(problems, fmt.Errorf("topology clusters[%d].name: %q must be non-empty, without '|', '.' and spaces",
				i, c.GetName()))
		}
		regions[c.GetName()] = c.GetRegion()
	}
	if _, ok := regions[cluster]; !ok {
		problems = append(problems, fmt.Errorf("topology clusters: own cluster %q is missing; clusters: %s", cluster, allowed(regions)))
	}
	for i, link := range topology.GetLinks() {
		for key, name := range map[string]string{"source_cluster": link.GetSourceCluster(), "destination_cluster": link.GetDestinationCluster()} {
			problems = appendIf(problems, unknownCluster(fmt.Sprintf("topology links[%d].%s", i, key), name, regions))
		}
		if !(link.GetRttMs() >= 0 && link.GetRttMs() <= 60_000) {
			problems = append(problems, fmt.Errorf("topology links[%d].rtt_ms: %v must be 0..60000", i, link.GetRttMs()))
		}
	}
	for i, service := range topology.GetServices() {
		_, wrong := parseHandling(fmt.Sprintf("topology services[%d]", i), service)
		problems = append(problems, wrong...)
		if report := service.GetLoadReport(); report != "" && report != loadReportORCA {
			problems = append(problems, fmt.Errorf("topology services[%d].load_report: %q must be %q or absent", i, report, loadReportORCA))
		}
	}
	return regions, problems
}

func allowed(regions map[string]string) string {
	return cmp.Or(strings.Join(slices.Sorted(maps.Keys(regions)), ", "), "none")
}

func unknownCluster(key, name string, regions map[string]string) error {
	if _, ok := regions[name]; ok {
		return nil
	}
	return fmt.Errorf("%s: unknown cluster %q; clusters: %s", key, name, allowed(regions))
}

func appendIf(problems []error, err error) []error {
	if err == nil {
		return problems
	}
	return append(problems, err)
}

// checkEndpoints returns the declared places, and every problem of the endpoints file.
func checkEndpoints(cluster string, endpoints *spillwayv1.Endpoints, regions map[string]string) (
	declared map[Place]declaration, problems []error) {
	if endpoints.GetCluster() != cluster {
		problems = append(problems, fmt.Errorf("endpoints cluster: %q; must be %q, the relay's own cluster",
			endpoints.GetCluster(), cluster))
	}
	declared = map[Place]declaration{}
	spelled := spellings{}
	for i, entry := range endpoints.GetServices() {
		key := fmt.Sprintf("endpoints services[%d]", i)
		if !traffic.IsServiceName(entry.GetService()) {
			problems = append(problems, fmt.Errorf("%s.service: %q must be letters, digits and inner '._-'", key, entry.GetService()))
		}
		if other := spelled.add(entry.GetService()); other != entry.GetService() {
			problems = append(problems, fmt.Errorf("%s.service: %q is listed as %q too; names must differ in more than case", key, entry.GetService(), other))
		}
		problems = appendIf(problems, unknownCluster(key+".cluster", entry.GetCluster(), regions))
		place := Place{Service: entry.GetService(), Cluster: entry.GetCluster()}
		if _, twice := declared[place]; twice {
			problems = append(problems, fmt.Errorf("%s: a second entry for service %q in cluster %q", key, place.Service, place.Cluster))
		}
		addresses, errs := parseAddresses(key, entry.GetAddresses())
		problems = append(append(problems, errs...), checkNames(key, entry.GetNames())...)
		declared[place] = declaration{addresses: addresses, named: len(entry.GetNames()) > 0}
	}
	problems = append(problems, checkDNS(endpoints.GetDns())...)
	return declared, append(problems, checkKubernetes(endpoints.GetKubernetes(), regions)...)
}

func parseAddresses(key string, texts []string) (addresses []Endpoint, problems []error) {
	for i, text := range texts {
		address, err := netip.ParseAddrPort(text)
		switch {
		case err != nil || address.Port() == 0:
			problems = append(problems, fmt.Errorf("%s.addresses[%d]: %q must be IPv4:port or [IPv6]:port; names go to %s.names", key, i, text, key))
		case slices.Contains(addresses, Endpoint{Address: address}):
			problems = append(problems, fmt.Errorf("%s.addresses[%d]: %q is listed twice", key, i, text))
		default:
			addresses = append(addresses, Endpoint{Address: address})
		}
	}
	return addresses, problems
}

func checkNames(key string, texts []string) (problems []error) {
	if len(texts) > maxNames {
		problems = append(problems, fmt.Errorf("%s.names: %d names; must be at most %d", key, len(texts), maxNames))
	}
	for i, text := range texts {
		if _, err := ParseName(text); err != nil {
			problems = append(problems, fmt.Errorf("%s.names[%d]: %w", key, i, err))
		} else if slices.Contains(texts[:i], text) {
			problems = append(problems, fmt.Errorf("%s.names[%d]: %q is listed twice", key, i, text))
		}
	}
	return problems
}

func checkDNS(settings *spillwayv1.DnsSettings) (problems []error) {
	if settings.GetRefreshSeconds() > maxRefreshSeconds {
		problems = append(problems, fmt.Errorf("endpoints dns.refresh_seconds: %d must be 1..%d", settings.GetRefreshSeconds(), maxRefreshSeconds))
	}
	if server := settings.GetServer(); server != "" {
		if address, err := netip.ParseAddrPort(server); err != nil || address.Port() == 0 {
			problems = append(problems, fmt.Errorf("endpoints dns.server: %q must be IPv4:port or [IPv6]:port", server))
		}
	}
	return problems
}

var (
	namespaceName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	portName      = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
)

func checkKubernetes(entries []*spillwayv1.KubernetesEndpoints, regions map[string]string) (problems []error) {
	seen := map[string]bool{}
	for i, entry := range entries {
		key := fmt.Sprintf("endpoints kubernetes[%d]", i)
		problems = appendIf(problems, unknownCluster(key+".cluster", entry.GetCluster(), regions))
		if seen[entry.GetCluster()] {
			problems = append(problems, fmt.Errorf("%s.cluster: a second entry for cluster %q", key, entry.GetCluster()))
		}
		seen[entry.GetCluster()] = true
		if len(entry.GetNamespaces()) == 0 {
			problems = append(problems, fmt.Errorf("%s.namespaces: none; at least one must be named", key))
		}
		for j, namespace := range entry.GetNamespaces() {
			if !namespaceName.MatchString(namespace) || slices.Contains(entry.GetNamespaces()[:j], namespace) {
				problems = append(problems, fmt.Errorf("%s.namespaces[%d]: %q must be a namespace's name, once", key, j, namespace))
			}
		}
		if !validPort(entry.GetPort()) {
			problems = append(problems, fmt.Errorf("%s.port: %q must be a port's name or 1..65535", key, entry.GetPort()))
		}
		if family := entry.GetIpFamily(); family != "" && family != "ipv4" && family != "ipv6" {
			problems = append(problems, fmt.Errorf("%s.ip_family: %q must be ipv4, ipv6 or absent", key, family))
		}
		if entry.GetContext() != "" && entry.GetKubeconfig() == "" {
			problems = append(problems, fmt.Errorf("%s.context: %q needs a kubeconfig", key, entry.GetContext()))
		}
	}
	return problems
}
