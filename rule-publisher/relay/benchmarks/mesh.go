package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"spillway.dev/contracts/names"
	"spillway.dev/contracts/spillwayv1"
)

// mesh is a synthetic call graph. Every service calls 3 to 5 others, each with some classes, and
// runs in every cluster. Cluster 0 is the one under test.
type mesh struct {
	services, clusters, classes int
}

func (m mesh) service(i int) string { return fmt.Sprintf("service-%02d", i%m.services) }
func (m mesh) cluster(i int) string { return fmt.Sprintf("cluster-%d", i) }
func (m mesh) home() string         { return m.cluster(0) }

// callees returns the services that service i calls. The strides share no factor with each other,
// so no service is called by all.
func (m mesh) callees(i int) (out []int) {
	for k := range 3 + i%3 {
		out = append(out, (i+1+k*7)%m.services)
	}
	return out
}

func (m mesh) topology() string {
	var out strings.Builder
	out.WriteString("clusters:\n")
	for i := range m.clusters {
		fmt.Fprintf(&out, "  - {name: %s, region: region-%d}\n", m.cluster(i), i)
	}
	out.WriteString("links:\n")
	for i := 1; i < m.clusters; i++ {
		fmt.Fprintf(&out, "  - {source_cluster: %s, destination_cluster: %s, rtt_ms: %d}\n", m.home(), m.cluster(i), 20*i)
	}
	return out.String()
}

// endpoints returns an endpoints file with `pods` addresses per service and cluster. Nothing
// listens on them.
func (m mesh) endpoints(pods int) string {
	var out strings.Builder
	fmt.Fprintf(&out, "cluster: %s\nservices:\n", m.home())
	for s := range m.services {
		for c := range m.clusters {
			var addresses []string
			for p := range pods {
				addresses = append(addresses, fmt.Sprintf("'10.%d.%d.%d:8080'", c, s, p+1))
			}
			fmt.Fprintf(&out, "  - {service: %s, cluster: %s, addresses: [%s]}\n", m.service(s), m.cluster(c), strings.Join(addresses, ", "))
		}
	}
	return out.String()
}

func (m mesh) class(service, k int) *spillwayv1.TrafficClass {
	paths := []string{"/items", "/items/{id}", "/users/{user}/orders/{order}", "/search", "/carts/{cart}/checkout"}
	return &spillwayv1.TrafficClass{Service: m.service(service), Method: "GET", PathTemplate: paths[k%len(paths)]}
}

// ruleset returns a ruleset of the version. `seeds` determines each source service's weights, so
// equal seeds mean equal rules.
func (m mesh) ruleset(version uint64, seeds []uint64, lasting time.Duration) *spillwayv1.Ruleset {
	now := time.Now()
	out := &spillwayv1.Ruleset{Id: fmt.Sprint("bench-", version), Version: version, Policy: "spillway",
		InputWindow: &spillwayv1.InputWindow{Id: fmt.Sprintf("%d-%d", now.Add(-30*time.Second).UnixMilli(), now.UnixMilli())},
		CreatedAt:   timestamppb.New(now), ExpiresAt: timestamppb.New(now.Add(lasting))}
	for s := range m.services {
		for k := range m.classes {
			out.TrafficClasses = append(out.TrafficClasses, m.class(s, k))
		}
		random := rand.New(rand.NewPCG(seeds[s], uint64(s)))
		for _, callee := range m.callees(s) {
			for k := range m.classes {
				out.Rules = append(out.Rules, &spillwayv1.Rule{SourceCluster: m.home(), SourceService: m.service(s),
					TrafficClass: m.class(callee, k), Destinations: m.split(random),
					Reason: "marginal cost is equal at the clusters that take some of it"})
			}
		}
	}
	return out
}

// split divides all traffic over the clusters, most of it local.
func (m mesh) split(random *rand.Rand) []*spillwayv1.Destination {
	left := uint32(names.ValueWeightTotal)
	out := make([]*spillwayv1.Destination, m.clusters)
	for i := m.clusters - 1; i > 0; i-- {
		weight := uint32(random.IntN(1500) + 1)
		out[i] = &spillwayv1.Destination{Cluster: m.cluster(i), Weight: weight, PredictedComputeMs: 5, PredictedNetworkMs: float64(20 * i)}
		left -= weight
	}
	out[0] = &spillwayv1.Destination{Cluster: m.home(), Weight: left, PredictedComputeMs: 9}
	return out
}
