package kubeletcpureceiver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var at = time.Date(2026, 1, 1, 0, 0, 10, 0, time.UTC)

func oneOf(name string, nanoCores uint64) containerStats {
	return containerStats{Name: name, CPU: cpuStats{Time: at, UsageNanoCores: &nanoCores}}
}

func limited(name, limit string) (c container) {
	c.Name = name
	if limit != "" {
		c.Resources.Limits = map[string]string{"cpu": limit}
	}
	return c
}

// node returns one pod, cart-1 of service cart, with an application and a sidecar before it.
func node(change func(*pod, *podStats)) (summary, podList) {
	row := podStats{PodRef: podRef{Name: "cart-1", UID: "u1"},
		Containers: []containerStats{oneOf("istio-proxy", 900e6), oneOf("app", 250e6)}}
	item := pod{}
	item.Metadata.UID = "u1"
	item.Metadata.Labels = map[string]string{"app": "cart"}
	item.Metadata.Annotations = map[string]string{}
	item.Spec.Containers = []container{limited("istio-proxy", "1"), limited("app", "500m")}
	change(&item, &row)
	return summary{Pods: []podStats{row}}, podList{Items: []pod{item}}
}

// TestUsages checks which service a pod belongs to, which container counts, and which limit is in
// force.
func TestUsages(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*pod, *podStats)
		want   usage
	}{
		"the first container that is no sidecar": {func(*pod, *podStats) {},
			usage{service: "cart", container: "app", cores: 0.25, limit: 0.5}},
		"OpenTelemetry's annotation precedes the label": {func(p *pod, _ *podStats) {
			p.Metadata.Annotations[serviceAnnotation] = "basket"
		}, usage{service: "basket", container: "app", cores: 0.25, limit: 0.5}},
		"the annotated container": {func(p *pod, _ *podStats) {
			p.Metadata.Annotations[mainAnnotation] = "istio-proxy"
		}, usage{service: "cart", container: "istio-proxy", cores: 0.9, limit: 1}},
		"after a resize the status tells": {func(p *pod, _ *podStats) {
			p.Status.ContainerStatuses = []container{limited("app", "2")}
		}, usage{service: "cart", container: "app", cores: 0.25, limit: 2}},
		"without a limit the usage remains": {func(p *pod, _ *podStats) {
			p.Spec.Containers[1] = limited("app", "")
		}, usage{service: "cart", container: "app", cores: 0.25}},
	} {
		t.Run(name, func(t *testing.T) {
			stats, pods := node(c.change)
			found, _ := usages(stats, pods, "app", []string{"istio-proxy"})
			c.want.pod, c.want.at = podRef{Name: "cart-1", UID: "u1"}, at
			require.Len(t, found, 1)
			assert.InDelta(t, c.want.cores, found[0].cores, 1e-12)
			found[0].cores = c.want.cores
			assert.Equal(t, c.want, found[0])
		})
	}
}

// TestMissing checks that a pod that lacks something is counted by what it lacks.
func TestMissing(t *testing.T) {
	for reason, change := range map[string]func(*pod, *podStats){
		noService:     func(p *pod, _ *podStats) { p.Metadata.Labels = nil },
		noContainer:   func(_ *pod, s *podStats) { s.Containers = s.Containers[:1] },
		noUsage:       func(_ *pod, s *podStats) { s.Containers[1].CPU.UsageNanoCores = nil },
		noLimit:       func(p *pod, _ *podStats) { p.Spec.Containers[1] = limited("app", "") },
		limitUnread:   func(p *pod, _ *podStats) { p.Spec.Containers[1] = limited("app", "much") },
		unknownToPods: func(p *pod, _ *podStats) { p.Metadata.UID = "another" },
	} {
		stats, pods := node(change)
		_, missing := usages(stats, pods, "app", []string{"istio-proxy"})
		assert.Equal(t, map[string]int64{reason: 1}, missing)
	}
}

// TestCores checks the ways in which Kubernetes writes CPU quantities. Any other text is an error.
func TestCores(t *testing.T) {
	for quantity, want := range map[string]float64{
		"2": 2, "250m": 0.25, "1.5": 1.5, "1500000u": 1.5, "3000000n": 0.003, "1k": 1000, "1e3": 1000, "0": 0} {
		got, err := cores(quantity)
		require.NoError(t, err, quantity)
		assert.InDelta(t, want, got, 1e-9, quantity)
	}
	for _, quantity := range []string{"", "m", "two", "-1", "NaN", "inf", "0x1p3", "1_0", "1 m", "1Ki"} {
		_, err := cores(quantity)
		assert.Error(t, err, quantity)
	}
}

// FuzzCores checks that any text yields an error or a finite number that is not negative.
func FuzzCores(f *testing.F) {
	for _, seed := range []string{"250m", "1e999", "+5", "-0", "١"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, quantity string) {
		if got, err := cores(quantity); err == nil && !(got >= 0 && got <= 1e308) {
			t.Fatalf("%q: %v", quantity, got)
		}
	})
}
