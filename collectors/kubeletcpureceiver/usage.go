package kubeletcpureceiver

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// serviceAnnotation is OpenTelemetry's own, and takes precedence over the label.
	serviceAnnotation = "resource.opentelemetry.io/service.name"
	// mainAnnotation names a pod's main container. It is kubectl's convention, which sidecar
	// injectors follow.
	mainAnnotation = "kubectl.kubernetes.io/default-container"
)

// Reasons why a pod has no utilisation. Many pods, such as system pods, normally belong to no
// service.
const (
	noService     = "no_service"
	noContainer   = "no_container"
	noUsage       = "no_usage"
	noLimit       = "no_limit"
	limitUnread   = "limit_unreadable"
	unknownToPods = "pod_unknown"
)

// usage is the CPU use of one service's container: cores used, and cores allowed (0: no limit).
type usage struct {
	pod                podRef
	service, container string
	at                 time.Time
	cores, limit       float64
}

// usages joins the CPU use (summary) with limits and identities (pods) by the pods' UIDs. The
// second value counts the pods that lack something, by reason.
func usages(stats summary, pods podList, label string, sidecars []string) ([]usage, map[string]int64) {
	known := make(map[string]pod, len(pods.Items))
	for _, item := range pods.Items {
		known[item.Metadata.UID] = item
	}
	var found []usage
	missing := map[string]int64{}
	for _, of := range stats.Pods {
		item, ok := known[of.PodRef.UID]
		if !ok {
			missing[unknownToPods]++
			continue
		}
		reading := usage{pod: of.PodRef, service: item.service(label), container: item.mainContainer(sidecars)}
		if reading.service == "" {
			missing[noService]++
			continue
		}
		index := slices.IndexFunc(of.Containers, func(c containerStats) bool { return c.Name == reading.container })
		if index < 0 {
			missing[noContainer]++
			continue
		}
		cpu := of.Containers[index].CPU
		if cpu.UsageNanoCores == nil || cpu.Time.IsZero() {
			missing[noUsage]++
			continue
		}
		reading.at, reading.cores = cpu.Time, float64(*cpu.UsageNanoCores)/1e9
		limit, err := item.cpuLimit(reading.container)
		if err != nil {
			missing[limitUnread]++
		} else if limit == 0 {
			missing[noLimit]++
		}
		reading.limit = limit
		found = append(found, reading)
	}
	return found, missing
}

func (p pod) service(label string) string {
	if name := p.Metadata.Annotations[serviceAnnotation]; name != "" {
		return name
	}
	return p.Metadata.Labels[label]
}

// mainContainer returns the annotated container, or else the first that is not a sidecar.
func (p pod) mainContainer(sidecars []string) string {
	if name := p.Metadata.Annotations[mainAnnotation]; name != "" {
		return name
	}
	for _, c := range p.Spec.Containers {
		if !slices.Contains(sidecars, c.Name) {
			return c.Name
		}
	}
	return ""
}

// cpuLimit returns the container's limit in cores. It is 0 if the container has no limit. The
// status takes precedence over the spec, because it has the limit in force.
func (p pod) cpuLimit(name string) (float64, error) {
	for _, containers := range [][]container{p.Status.ContainerStatuses, p.Spec.Containers} {
		for _, c := range containers {
			if limit := c.Resources.Limits["cpu"]; c.Name == name && limit != "" {
				return cores(limit)
			}
		}
	}
	return 0, nil
}

var scales = map[byte]float64{'n': 1e-9, 'u': 1e-6, 'm': 1e-3, 'k': 1e3}

// cores reads a Kubernetes quantity of CPU: "250m", "2", "1.5"
// (k8s.io/apimachinery/pkg/api/resource).
func cores(quantity string) (float64, error) {
	number, scale := quantity, 1.0
	if len(quantity) > 0 {
		if s, ok := scales[quantity[len(quantity)-1]]; ok {
			number, scale = quantity[:len(quantity)-1], s
		}
	}
	value, err := strconv.ParseFloat(number, 64)
	if err != nil || strings.ContainsAny(number, "xXpPiI_") || value < 0 || math.IsNaN(value) {
		return 0, fmt.Errorf("%q must be a quantity of CPU", quantity)
	}
	return value * scale, nil
}
