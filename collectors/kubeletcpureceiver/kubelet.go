package kubeletcpureceiver

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"
)

// maxAnswer limits how much of one answer is read, in bytes. A node with 250 pods answers with a
// few megabytes.
const maxAnswer = 64 << 20

// summary is the part of /stats/summary that is used
// (k8s.io/kubelet/pkg/apis/stats/v1alpha1.Summary).
type summary struct {
	Pods []podStats `json:"pods"`
}

type podStats struct {
	PodRef     podRef           `json:"podRef"`
	Containers []containerStats `json:"containers"`
}

type containerStats struct {
	Name string   `json:"name"`
	CPU  cpuStats `json:"cpu"`
}

type podRef struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	UID       string `json:"uid"`
}

// cpuStats is the CPU use of a container. UsageNanoCores is the mean over the kubelet's own window,
// which ends at Time. It is absent at first.
type cpuStats struct {
	Time           time.Time `json:"time"`
	UsageNanoCores *uint64   `json:"usageNanoCores"`
}

// podList is the part of /pods that is used (k8s.io/api/core/v1.PodList).
type podList struct {
	Items []pod `json:"items"`
}

type pod struct {
	Metadata struct {
		UID         string            `json:"uid"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Containers []container `json:"containers"`
	} `json:"spec"`
	Status struct {
		ContainerStatuses []container `json:"containerStatuses"`
	} `json:"status"`
}

// container is a container of a spec or of a status. In a status, the resources are those in force
// after a resize in place.
type container struct {
	Name      string `json:"name"`
	Resources struct {
		Limits map[string]string `json:"limits"`
	} `json:"resources"`
}

// kubelet requests data from one node's kubelet.
type kubelet struct {
	config *Config
	client *http.Client
}

func (k *kubelet) start(ctx context.Context, host component.Host, telemetry component.TelemetrySettings) (err error) {
	k.client, err = k.config.ToClient(ctx, host.GetExtensions(), telemetry)
	return err
}

func (k *kubelet) get(ctx context.Context, path string, into any) error {
	token, err := os.ReadFile(k.config.TokenFile)
	if err != nil {
		return fmt.Errorf("token_file: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(k.config.Endpoint, "/")+path, http.NoBody)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	answer, err := k.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		reason, _ := io.ReadAll(io.LimitReader(answer.Body, 512))
		return fmt.Errorf("GET %s: %s: %s", path, answer.Status, strings.TrimSpace(string(reason)))
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxAnswer)).Decode(into); err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	return nil
}
