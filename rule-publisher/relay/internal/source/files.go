// Package source reads the relay's inputs: rulesets from NATS, and topology and declared endpoints
// from files.
package source

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	"spillway.dev/contracts/spillwayv1"
)

// Files are the topology and the endpoints as seen from one cluster, in YAML with the protobuf JSON
// names.
type Files struct {
	Topology, Endpoints string // paths
	topology, endpoints []byte // content at the last Load
}

// Inputs is the content of both files, not yet checked against each other.
type Inputs struct {
	Topology  *spillwayv1.Topology
	Endpoints *spillwayv1.Endpoints
}

// Load reads both files. The error lists every key that is unknown or has a wrong type.
func (f *Files) Load() (Inputs, error) {
	topology, err := os.ReadFile(f.Topology)
	endpoints, err2 := os.ReadFile(f.Endpoints)
	if err := errors.Join(err, err2); err != nil {
		return Inputs{}, err
	}
	f.topology, f.endpoints = topology, endpoints
	inputs := Inputs{Topology: &spillwayv1.Topology{}, Endpoints: &spillwayv1.Endpoints{}}
	return inputs, errors.Join(
		parse(f.Topology, topology, inputs.Topology),
		parse(f.Endpoints, endpoints, inputs.Endpoints),
	)
}

func parse(path string, content []byte, into proto.Message) error {
	document, err := yaml.YAMLToJSONStrict(content)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := errors.Join(unknownKeys(document, into.ProtoReflect().Descriptor())...); err != nil {
		return fmt.Errorf("%s:\n%w", path, err)
	}
	if err := protojson.Unmarshal(document, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Unchanged reports whether both files have the same content as at the last Load. Content is
// compared, not modification times, because mounted configuration changes by swapping symbolic
// links.
func (f *Files) Unchanged() (bool, error) {
	topology, err := os.ReadFile(f.Topology)
	endpoints, err2 := os.ReadFile(f.Endpoints)
	return bytes.Equal(topology, f.topology) && bytes.Equal(endpoints, f.endpoints), errors.Join(err, err2)
}
