package kubernetes

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/table"
)

func ptr[T any](value T) *T { return &value }

// endpoint returns an endpoint whose conditions are given as letters: r is ready, s serving, t
// terminating. A capital letter means false; a condition without a letter is unknown.
func endpoint(address, conditions string) discovery.Endpoint {
	e := discovery.Endpoint{Addresses: []string{address}}
	for _, letter := range conditions {
		value := ptr(letter >= 'a')
		switch strings.ToLower(string(letter)) {
		case "r":
			e.Conditions.Ready = value
		case "s":
			e.Conditions.Serving = value
		case "t":
			e.Conditions.Terminating = value
		}
	}
	return e
}

func slice(namespace, service string, endpoints ...discovery.Endpoint) *discovery.EndpointSlice {
	s := &discovery.EndpointSlice{
		ObjectMeta: meta.ObjectMeta{Namespace: namespace, Name: service + "-1", Labels: map[string]string{discovery.LabelServiceName: service}},
		Endpoints:  endpoints, AddressType: discovery.AddressTypeIPv4,
		Ports: []discovery.EndpointPort{{Name: ptr("dns"), Port: ptr(int32(53)), Protocol: ptr(core.ProtocolUDP)},
			{Name: ptr("proxy"), Port: ptr(int32(80))}}}
	if len(endpoints) > 0 && strings.Contains(endpoints[0].Addresses[0], ":") {
		s.AddressType = discovery.AddressTypeIPv6
	}
	return s
}

func read(spec *spillwayv1.KubernetesEndpoints, all ...*discovery.EndpointSlice) (string, []string) {
	spec.Cluster = "north"
	if spec.Namespaces == nil {
		spec.Namespaces = []string{"shop", "other"}
	}
	if spec.Port == "" {
		spec.Port = "proxy"
	}
	found, ignored := endpointsOf(spec, all)
	var out []string
	for _, place := range slices.SortedFunc(maps.Keys(found), func(a, b table.Place) int { return strings.Compare(a.Service, b.Service) }) {
		text := place.Service
		for _, e := range found[place] {
			text += " " + e.Address.String()
		}
		out = append(out, text)
	}
	return strings.Join(out, "; "), ignored
}

// TestConditions checks that conditions are read as kube-proxy reads them. Unknown readiness counts
// as ready. Terminating endpoints count only while no endpoint of the service is ready, and only if
// they serve.
func TestConditions(t *testing.T) {
	for _, test := range []struct{ want, first, second string }{
		{"cart 10.0.0.1:80 10.0.0.2:80", "rsT", ""},
		{"cart 10.0.0.1:80", "r", "Rst"},
		{"cart 10.0.0.2:80", "RSt", "Rst"},
		{"cart 10.0.0.1:80 10.0.0.2:80", "Rst", "Rst"},
		{"", "RsT", "RSt"},
		{"", "R", "Rt"},
	} {
		got, ignored := read(&spillwayv1.KubernetesEndpoints{}, slice("shop", "cart", endpoint("10.0.0.1", test.first)),
			slice("shop", "cart", endpoint("10.0.0.2", test.second)))
		if got != test.want || len(ignored) != 0 {
			t.Errorf("%s and %s: %q, want %q; ignored %v", test.first, test.second, got, test.want, ignored)
		}
	}
}

// TestFamilies checks that a pod with addresses of both families counts once: over IPv4 unless the
// file says IPv6.
func TestFamilies(t *testing.T) {
	both := []*discovery.EndpointSlice{slice("shop", "cart", endpoint("10.0.0.1", "r")), slice("shop", "cart", endpoint("fd00::1", "r")),
		slice("shop", "six", endpoint("fd00::2", "r"))}
	for family, want := range map[string]string{
		"":     "cart 10.0.0.1:80; six [fd00::2]:80",
		"ipv4": "cart 10.0.0.1:80",
		"ipv6": "cart [fd00::1]:80; six [fd00::2]:80",
	} {
		if got, _ := read(&spillwayv1.KubernetesEndpoints{IpFamily: family}, both...); got != want {
			t.Errorf("family %q: %q, want %q", family, got, want)
		}
	}
}

// TestReadiness checks that pods that terminate do not count, that unknown readiness counts as
// ready, and that a pod in two slices or of two families counts once.
func TestReadiness(t *testing.T) {
	spec := &spillwayv1.KubernetesEndpoints{Cluster: "north", Namespaces: []string{"shop"}, Port: "proxy"}
	got := readinessOf(spec, []*discovery.EndpointSlice{
		slice("shop", "cart", endpoint("10.0.0.1", "rsT"), endpoint("10.0.0.2", "RsT"), endpoint("10.0.0.3", "Rst"), endpoint("10.0.0.4", "")),
		slice("shop", "cart", endpoint("10.0.0.1", "RST")), slice("shop", "cart", endpoint("fd00::1", "r")),
		slice("shop", "dead", endpoint("10.0.0.5", "R")), slice("shop", "gone", endpoint("10.0.0.6", "Rt"))})
	want := map[string]table.Readiness{"cart": {Pods: 3, Ready: 2}, "dead": {Pods: 1}}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestReadinessIsUnknown checks that nothing is known before the API has answered, and while it does
// not answer.
func TestReadinessIsUnknown(t *testing.T) {
	s := &Source{failed: map[string]bool{}}
	if s.Readiness() != nil {
		t.Error("pods are known before the first list")
	}
	s.setReadiness(map[string]table.Readiness{"cart": {Pods: 3, Ready: 2}})
	if s.Readiness() == nil {
		t.Error("pods are unknown after the first list")
	}
	s.failed["shop"] = true
	if s.Readiness() != nil {
		t.Error("pods are known while the API does not answer")
	}
}

// TestPorts checks that a port given by name must be a TCP port of the slice, and that a port given
// by number is used unchanged.
func TestPorts(t *testing.T) {
	for port, want := range map[string]string{"proxy": "cart 10.0.0.1:80", "15006": "cart 10.0.0.1:15006", "dns": "", "absent": ""} {
		got, ignored := read(&spillwayv1.KubernetesEndpoints{Port: port}, slice("shop", "cart", endpoint("10.0.0.1", "r")))
		if got != want || (len(ignored) == 1) != (want == "") {
			t.Errorf("port %s: %q, want %q; ignored %v", port, got, want, ignored)
		}
	}
}

// TestWhatIsIgnored checks that of two namespaces with the same service the first in the file
// counts. Malformed entries are reported and do not affect others.
func TestWhatIsIgnored(t *testing.T) {
	got, ignored := read(&spillwayv1.KubernetesEndpoints{},
		slice("other", "cart", endpoint("10.0.0.9", "r")), slice("shop", "cart", endpoint("10.0.0.1", "r"), endpoint("rubbish", "r"),
			endpoint("fd00::1", "r"), discovery.Endpoint{}), slice("shop", "a|b", endpoint("10.0.0.3", "r")), slice("other", "", endpoint("10.0.0.3", "r")))
	if got != "cart 10.0.0.1:80" || len(ignored) != 6 {
		t.Errorf("%q, ignored %d:\n%s", got, len(ignored), strings.Join(ignored, "\n"))
	}
	label := slice("shop", "cart", endpoint("10.0.0.1", "r"))
	label.Labels["app"] = "basket"
	if got, _ := read(&spillwayv1.KubernetesEndpoints{ServiceLabel: "app"}, label); got != "basket 10.0.0.1:80" {
		t.Errorf("with a label of its own the service is %q", got)
	}
}

// FuzzSlices checks three properties for any slices: no endpoint appears twice, every address is
// valid, and every place is in the declared cluster.
func FuzzSlices(f *testing.F) {
	f.Add("10.0.0.1", "rst", "fd00::1", "R", "proxy")
	f.Fuzz(func(t *testing.T, first, conditions, second, more, port string) {
		found, _ := endpointsOf(&spillwayv1.KubernetesEndpoints{Cluster: "north", Namespaces: []string{"shop"}, Port: port},
			[]*discovery.EndpointSlice{slice("shop", "cart", endpoint(first, conditions), endpoint(second, more), endpoint(first, more))})
		for place, endpoints := range found {
			seen := map[string]bool{}
			for _, e := range endpoints {
				if seen[e.Address.String()] || !e.Address.IsValid() || place.Cluster != "north" {
					t.Fatal(fmt.Sprint(found))
				}
				seen[e.Address.String()] = true
			}
		}
	})
}
