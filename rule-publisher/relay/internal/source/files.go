// Package source brings in what the relay steers by: rulesets from NATS, topology and endpoints
// from files.
package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/table"
)

// Files are the topology and the endpoints as seen from the cluster: YAML in protobuf JSON names.
type Files struct {
	Cluster             string
	Topology, Endpoints string // paths
	topology, endpoints []byte // content last seen
}

// Load reads both files. The error lists everything that is wrong with them.
func (f *Files) Load() (*table.Network, error) {
	topology, err := os.ReadFile(f.Topology)
	endpoints, err2 := os.ReadFile(f.Endpoints)
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	f.topology, f.endpoints = topology, endpoints
	topologyMessage, endpointsMessage := &spillwayv1.Topology{}, &spillwayv1.Endpoints{}
	err = errors.Join(
		parse(f.Topology, topology, topologyMessage),
		parse(f.Endpoints, endpoints, endpointsMessage),
	)
	if err != nil {
		return nil, err
	}
	network, err := table.NewNetwork(f.Cluster, topologyMessage, endpointsMessage, nil)
	if err != nil {
		return nil, fmt.Errorf("%s, %s:\n%w", f.Topology, f.Endpoints, err)
	}
	return network, nil
}

func parse(path string, content []byte, into proto.Message) error {
	document, err := yaml.YAMLToJSONStrict(content)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := protojson.Unmarshal(document, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Watch calls `changed` with each good new version of the files. A bad version is logged and
// counted once, and the old one stays. Content is compared, not times: configuration that is
// mounted changes by swapping links.
func (f *Files) Watch(ctx context.Context, every time.Duration, counters *count.Counters, log *slog.Logger,
	changed func(*table.Network)) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	unreadable := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		same, err := f.unchanged()
		if err == nil && same {
			unreadable = false
			continue
		}
		var network *table.Network
		if err == nil {
			network, err = f.Load()
		} else if unreadable { // said already
			continue
		} else {
			unreadable = true
		}
		if err != nil {
			counters.Add(count.FilesRefused)
			log.Error("a new version of topology or endpoints is refused; the old one stays", "error", err)
			continue
		}
		unreadable = false
		changed(network)
	}
}

func (f *Files) unchanged() (bool, error) {
	topology, err := os.ReadFile(f.Topology)
	endpoints, err2 := os.ReadFile(f.Endpoints)
	return bytes.Equal(topology, f.topology) && bytes.Equal(endpoints, f.endpoints), errors.Join(err, err2)
}
