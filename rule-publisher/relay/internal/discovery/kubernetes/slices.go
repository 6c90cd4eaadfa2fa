// Package kubernetes finds endpoints by watching the EndpointSlices of a cluster's API server.
package kubernetes

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"

	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/table"
	"spillway.dev/relay/internal/table/traffic"
)

// The address families over which a service may be reached.
const (
	ipv4 = "ipv4"
	ipv6 = "ipv6"
)

// candidate is one endpoint of a slice with a usable address.
type candidate struct {
	endpoint    table.Endpoint
	ready       bool
	terminating bool
	leaving     bool // terminating, but still serving
}

// endpointsOf returns the usable endpoints of all slices, by place, and describes those that it
// ignored. A service's endpoints are its ready ones. When none is ready, they are those that still
// serve while they terminate, as in kube-proxy. When two namespaces have a service of the same
// name, only the first namespace's counts.
func endpointsOf(spec *spillwayv1.KubernetesEndpoints, all []*discovery.EndpointSlice) (found table.Found, ignored []string) {
	found = table.Found{}
	byService, ignored := byFamily(spec, all)
	for name, families := range byService {
		if usable := choose(families, spec.GetIpFamily()); len(usable) > 0 {
			found[table.Place{Service: name, Cluster: spec.GetCluster()}] = usable
		}
	}
	return found, ignored
}

// readinessOf returns how many pods each service has, and how many of them are ready. Pods that
// terminate do not count. A service without a pod is left out.
func readinessOf(spec *spillwayv1.KubernetesEndpoints, all []*discovery.EndpointSlice) map[string]table.Readiness {
	out := map[string]table.Readiness{}
	byService, _ := byFamily(spec, all)
	for name, families := range byService {
		pods := map[netip.AddrPort]bool{} // whether ready
		for _, c := range families[familyOf(families, spec.GetIpFamily())] {
			if !c.terminating {
				pods[c.endpoint.Address] = pods[c.endpoint.Address] || c.ready
			}
		}
		if len(pods) == 0 {
			continue
		}
		counted := table.Readiness{Pods: uint32(len(pods))}
		for _, ready := range pods {
			if ready {
				counted.Ready++
			}
		}
		out[name] = counted
	}
	return out
}

// familyOf returns the wanted address family, otherwise IPv4 unless only IPv6 has endpoints.
func familyOf(families map[string][]candidate, wanted string) string {
	if wanted != "" {
		return wanted
	}
	if len(families[ipv4]) > 0 {
		return ipv4
	}
	return ipv6
}

// byFamily returns the endpoints of each service, by address family, and describes what it ignored.
func byFamily(spec *spillwayv1.KubernetesEndpoints, all []*discovery.EndpointSlice) (found map[string]map[string][]candidate, ignored []string) {
	label := cmp.Or(spec.GetServiceLabel(), discovery.LabelServiceName)
	byService := map[string][]*discovery.EndpointSlice{}
	for _, slice := range all {
		name := slice.Labels[label]
		if !traffic.IsServiceName(name) {
			ignored = append(ignored, fmt.Sprintf("slice %s/%s: label %s: %q must be a service's name", slice.Namespace, slice.Name, label, name))
			continue
		}
		byService[name] = append(byService[name], slice)
	}
	found = map[string]map[string][]candidate{}
	for name, group := range byService {
		group, foreign := ofFirstNamespace(spec.GetNamespaces(), group)
		ignored = append(ignored, foreign...)
		families, unusable := candidates(spec, group)
		ignored = append(ignored, unusable...)
		found[name] = families
	}
	slices.Sort(ignored)
	return found, ignored
}

// ofFirstNamespace keeps the slices of the namespace that comes first in `order`.
func ofFirstNamespace(order []string, group []*discovery.EndpointSlice) (kept []*discovery.EndpointSlice, ignored []string) {
	rank := func(s *discovery.EndpointSlice) int { return slices.Index(order, s.Namespace) }
	first := slices.MinFunc(group, func(a, b *discovery.EndpointSlice) int { return cmp.Compare(rank(a), rank(b)) })
	for _, slice := range group {
		if slice.Namespace == first.Namespace {
			kept = append(kept, slice)
		} else {
			ignored = append(ignored, fmt.Sprintf("slice %s/%s: namespace %s has this service too, and comes first",
				slice.Namespace, slice.Name, first.Namespace))
		}
	}
	return kept, ignored
}

// candidates returns the endpoints with a usable address and port, by address family.
func candidates(spec *spillwayv1.KubernetesEndpoints, group []*discovery.EndpointSlice) (families map[string][]candidate, ignored []string) {
	families = map[string][]candidate{}
	for _, slice := range group {
		port, ok := portOf(slice, spec.GetPort())
		if !ok {
			if len(slice.Endpoints) > 0 {
				ignored = append(ignored, fmt.Sprintf("slice %s/%s: has no TCP port %q", slice.Namespace, slice.Name, spec.GetPort()))
			}
			continue
		}
		family := ipv4
		if slice.AddressType == discovery.AddressTypeIPv6 {
			family = ipv6
		}
		for _, e := range slice.Endpoints {
			c, err := newCandidate(e, port, family)
			if err != nil {
				ignored = append(ignored, fmt.Sprintf("slice %s/%s: %v", slice.Namespace, slice.Name, err))
				continue
			}
			families[family] = append(families[family], c)
		}
	}
	return families, ignored
}

// portOf returns a slice's port by number or by name. A number is used even if the slice does not
// list it, because a proxy's port need not be one of the Service's.
func portOf(slice *discovery.EndpointSlice, text string) (uint16, bool) {
	if number, err := strconv.ParseUint(text, 10, 16); err == nil {
		return uint16(number), true
	}
	for _, port := range slice.Ports {
		tcp := port.Protocol == nil || *port.Protocol == core.ProtocolTCP
		if tcp && port.Name != nil && *port.Name == text && port.Port != nil && *port.Port > 0 && *port.Port <= 65535 {
			return uint16(*port.Port), true
		}
	}
	return 0, false
}

// newCandidate reads an endpoint. All its addresses belong to one pod, and the API says to use the
// first.
func newCandidate(e discovery.Endpoint, port uint16, family string) (candidate, error) {
	if len(e.Addresses) == 0 {
		return candidate{}, fmt.Errorf("an endpoint has no address")
	}
	address, err := netip.ParseAddr(e.Addresses[0])
	if err != nil || address.Is4() != (family == ipv4) {
		return candidate{}, fmt.Errorf("address %q must be an %s address", e.Addresses[0], family)
	}
	is := func(condition *bool, unknown bool) bool {
		if condition == nil {
			return unknown
		}
		return *condition
	}
	ready := is(e.Conditions.Ready, true) // the API says that unknown counts as ready
	terminating := is(e.Conditions.Terminating, false)
	return candidate{
		endpoint:    table.Endpoint{Address: netip.AddrPortFrom(address, port), Zone: deref(e.Zone)},
		ready:       ready,
		terminating: terminating,
		leaving:     is(e.Conditions.Serving, ready) && terminating,
	}, nil
}

func deref(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

// choose returns the endpoints of one address family: the wanted one, otherwise IPv4 unless only
// IPv6 has any. Slices of both families name the same pods, which must not be counted twice.
func choose(families map[string][]candidate, wanted string) []table.Endpoint {
	if wanted != "" {
		return usable(families[wanted])
	}
	if four := usable(families[ipv4]); len(four) > 0 {
		return four
	}
	return usable(families[ipv6])
}

// usable returns the ready endpoints or, when none is ready, those that still serve while they
// terminate.
func usable(all []candidate) (out []table.Endpoint) {
	for _, c := range all {
		if c.ready {
			out = append(out, c.endpoint)
		}
	}
	if len(out) == 0 {
		for _, c := range all {
			if c.leaving {
				out = append(out, c.endpoint)
			}
		}
	}
	slices.SortFunc(out, table.Endpoint.Compare)
	return slices.CompactFunc(out, func(a, b table.Endpoint) bool { return a.Address == b.Address })
}
